package apply_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// kubeVirt stands between the engine and the API server. It completes a VirtualMachine that is created as KubeVirt's
// webhook does, in the same request, so that the values count as posted by the operator. Before the next apply request of
// a VirtualMachine it calls meanwhile.
type kubeVirt struct {
	client.Client
	meanwhile func()
}

const (
	firmwareUUID   = "5d307ca9-b3ef-428c-8861-06e72d69f223"
	firmwareSerial = "e4686d2c-6e8d-4335-b8fd-81bee22f4815"
	topology       = "kubevirt.io/pci-topology-version"
)

// Create completes a VirtualMachine.
func (k *kubeVirt) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	if vm, ok := object.(*kubevirtv1.VirtualMachine); ok {
		if vm.Spec.Template.ObjectMeta.Annotations == nil {
			vm.Spec.Template.ObjectMeta.Annotations = map[string]string{}
		}
		vm.Spec.Template.ObjectMeta.Annotations[topology] = "v3"
		domain := &vm.Spec.Template.Spec.Domain
		vm.Spec.Template.Spec.Architecture, domain.Machine = "amd64", &kubevirtv1.Machine{Type: "q35"}
		if domain.Firmware == nil {
			domain.Firmware = &kubevirtv1.Firmware{}
		}
		domain.Firmware.UUID, domain.Firmware.Serial = types.UID(firmwareUUID), firmwareSerial
	}
	return k.Client.Create(ctx, object, options...)
}

// Patch calls meanwhile before an apply.
func (k *kubeVirt) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if k.meanwhile != nil && patch.Type() == types.ApplyPatchType {
		meanwhile := k.meanwhile
		k.meanwhile = nil
		meanwhile()
	}
	return k.Client.Patch(ctx, object, patch, options...)
}

// vmBench has an engine behind kubeVirt.
type vmBench struct {
	*bench
	between *kubeVirt
}

func newVMBench(t *testing.T) *vmBench {
	t.Helper()
	b := &vmBench{bench: newBench(t), between: &kubeVirt{Client: cached}}
	b.restart()
	return b
}

// restart discards everything that the engine knows.
func (b *vmBench) restart() { b.engine = apply.New(b.between, live, clock.RealClock{}) }

// machine returns what the operator wants for a machine with so many cores and these disks.
func (b *vmBench) machine(cores uint32, disks ...string) *kubevirtv1.VirtualMachine {
	vm := &kubevirtv1.VirtualMachine{ObjectMeta: b.meta("vm")}
	vm.Spec.RunStrategy = ptr.To(kubevirtv1.RunStrategyAlways)
	vm.Spec.Template = &kubevirtv1.VirtualMachineInstanceTemplateSpec{}
	spec := &vm.Spec.Template.Spec
	spec.Domain.CPU = &kubevirtv1.CPU{Cores: cores, Sockets: 1, Threads: 1}
	spec.Domain.Memory = &kubevirtv1.Memory{Guest: ptr.To(resource.MustParse("4Gi"))}
	for _, disk := range disks {
		addVolume(vm, disk)
	}
	spec.Networks = []kubevirtv1.Network{{Name: "default", NetworkSource: kubevirtv1.NetworkSource{Pod: &kubevirtv1.PodNetwork{}}}}
	spec.Domain.Devices.Interfaces = []kubevirtv1.Interface{{Name: "default", Model: "virtio"}}
	return vm
}

// addVolume appends a disk and its volume.
func addVolume(vm *kubevirtv1.VirtualMachine, name string) {
	spec := &vm.Spec.Template.Spec
	claim := kubevirtv1.PersistentVolumeClaimVolumeSource{}
	claim.ClaimName = "vm-" + name
	spec.Volumes = append(spec.Volumes, kubevirtv1.Volume{Name: name, VolumeSource: kubevirtv1.VolumeSource{PersistentVolumeClaim: &claim}})
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, kubevirtv1.Disk{
		Name: name, DiskDevice: kubevirtv1.DiskDevice{Disk: &kubevirtv1.DiskTarget{Bus: kubevirtv1.DiskBusVirtio}},
	})
}

// applied applies until nothing is outdated, waits until the cache shows the result, and returns the requests.
func (b *vmBench) applied(vm *kubevirtv1.VirtualMachine) []string {
	b.Helper()
	asked.take()
	for {
		err := b.try(set(vm))
		if !apply.IsOutdated(err) {
			do(b.T, err)
			break
		}
		seen(b.T, vm)
	}
	sent := verbs(asked.take())
	seen(b.T, vm)
	return sent
}

// stop is what KubeVirt's subresource stop does.
func (b *vmBench) stop() {
	b.Helper()
	patch := `[{"op":"test","path":"/spec/runStrategy","value":"Always"},{"op":"replace","path":"/spec/runStrategy","value":"Halted"}]`
	do(b.T, direct.Patch(b.Context(), b.machine(0), client.RawPatch(types.JSONPatchType, []byte(patch)), client.FieldOwner("virt-api")))
}

// plug is what KubeVirt's subresource addvolume does.
func (b *vmBench) plug() {
	b.Helper()
	vm := now(b.T, b.machine(0))
	addVolume(vm, "plugged")
	do(b.T, direct.Update(b.Context(), vm, client.FieldOwner("virt-api")))
}

// describe returns what must survive, and what the operator changes.
func (b *vmBench) describe() string {
	b.Helper()
	vm := now(b.T, b.machine(0))
	spec := vm.Spec.Template.Spec
	var volumes, disks, networks []string
	for _, v := range spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	for _, d := range spec.Domain.Devices.Disks {
		disks = append(disks, d.Name)
	}
	for _, n := range spec.Networks {
		networks = append(networks, n.Name)
	}
	if !slices.Equal(volumes, disks) {
		b.Errorf("volumes %v, disks %v", volumes, disks)
	}
	identity := "identity kept"
	if f := spec.Domain.Firmware; f == nil || f.UUID != firmwareUUID || f.Serial != firmwareSerial || spec.Architecture != "amd64" ||
		spec.Domain.Machine == nil || spec.Domain.Machine.Type != "q35" || vm.Spec.Template.ObjectMeta.Annotations[topology] != "v3" {
		identity = fmt.Sprintf("identity lost: %+v %+v %v", f, spec.Domain.Machine, vm.Spec.Template.ObjectMeta.Annotations)
	}
	return fmt.Sprintf("%s, %d cores, disks %v, networks %v, %s", ptr.Deref(vm.Spec.RunStrategy, "none"), spec.Domain.CPU.Cores, disks, networks, identity)
}

// TestVirtualMachinesKeepWhatKubeVirtSet over updates, restarts of the operator, and changes of others.
func TestVirtualMachinesKeepWhatKubeVirtSet(t *testing.T) {
	b := newVMBench(t)
	equal(t, "requests to create", []string{"POST"}, b.applied(b.machine(1, "root")))
	equal(t, "requests at rest", []string(nil), b.applied(b.machine(1, "root")))
	equal(t, "requests of the first update", []string{"GET", "PATCH", "PATCH"}, b.applied(b.machine(2, "root")))
	equal(t, "after the first", "Always, 2 cores, disks [root], networks [default], identity kept", b.describe())
	equal(t, "requests of the second update", []string{"PATCH"}, b.applied(b.machine(3, "root", "data")))
	equal(t, "after the second", "Always, 3 cores, disks [root data], networks [default], identity kept", b.describe())
	b.restart()
	equal(t, "requests after a restart", []string(nil), b.applied(b.machine(3, "root", "data")))
	equal(t, "requests of the third update", []string{"PATCH"}, b.applied(b.machine(4, "root")))
	equal(t, "after the third", "Always, 4 cores, disks [root], networks [default], identity kept", b.describe())
	b.restart()
	equal(t, "requests at rest", []string(nil), b.applied(b.machine(4, "root")))
}

// TestAStopCausesNoWrite, neither of a machine that was only created nor of one that was updated.
func TestAStopCausesNoWrite(t *testing.T) {
	for name, updated := range map[string]bool{"created": false, "updated": true} {
		t.Run(name, func(t *testing.T) {
			b := newVMBench(t)
			b.applied(b.machine(1, "root"))
			if updated {
				b.applied(b.machine(2, "root"))
				b.applied(b.machine(1, "root"))
			}
			b.stop()
			seen(t, b.machine(1))
			equal(t, "requests after a stop", []string(nil), b.applied(b.machine(1, "root")))
			b.restart()
			equal(t, "requests after a restart", []string(nil), b.applied(b.machine(1, "root")))
			b.applied(b.machine(2, "root"))
			equal(t, "after an update", "Halted, 2 cores, disks [root], networks [default], identity kept", b.describe())
		})
	}
}

// TestWhatOthersChangeDuringAnUpdateIsKept: between the read of a machine and the apply, for the first update of a machine
// and for later ones.
func TestWhatOthersChangeDuringAnUpdateIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		updates   uint32
		meanwhile func(*vmBench)
		want      string
	}{
		"a stop during the first update":          {1, (*vmBench).stop, "Halted, 2 cores, disks [root], networks [default], identity kept"},
		"a stop during the second":                {2, (*vmBench).stop, "Halted, 3 cores, disks [root], networks [default], identity kept"},
		"a volume plugged during the first":       {1, (*vmBench).plug, "Always, 2 cores, disks [root plugged], networks [default], identity kept"},
		"a volume plugged during the third":       {3, (*vmBench).plug, "Always, 4 cores, disks [root plugged], networks [default], identity kept"},
		"a stop and a volume during one":          {1, func(b *vmBench) { b.stop(); b.plug() }, "Halted, 2 cores, disks [root plugged], networks [default], identity kept"},
		"nothing, for comparison with the others": {3, func(*vmBench) {}, "Always, 4 cores, disks [root], networks [default], identity kept"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newVMBench(t)
			b.applied(b.machine(1, "root"))
			for i := range test.updates {
				if i == test.updates-1 {
					b.between.meanwhile = func() { test.meanwhile(b) }
				}
				b.applied(b.machine(2+i, "root"))
			}
			equal(t, "the machine", test.want, b.describe())
			equal(t, "requests at rest", []string(nil), b.applied(b.machine(1+test.updates, "root")))
			b.restart()
			equal(t, "requests after a restart", []string(nil), b.applied(b.machine(1+test.updates, "root")))
		})
	}
}

// TestAnUpdateFromAnOutdatedReadIsRefused, so that the next pass decides again.
func TestAnUpdateFromAnOutdatedReadIsRefused(t *testing.T) {
	b := newVMBench(t)
	b.applied(b.machine(1, "root"))
	b.applied(b.machine(2, "root"))
	b.between.meanwhile = b.stop
	if err := b.try(set(b.machine(3, "root"))); !apply.IsOutdated(err) {
		t.Errorf("err = %v, want one that says outdated", err)
	}
	equal(t, "the machine", "Halted, 2 cores, disks [root], networks [default], identity kept", b.describe())
}

// TestVolumesOfOthersOutliveChangesOfDisks: disks of the operator come and go.
func TestVolumesOfOthersOutliveChangesOfDisks(t *testing.T) {
	b := newVMBench(t)
	b.applied(b.machine(1, "root", "data"))
	b.plug()
	seen(t, b.machine(1))
	equal(t, "requests after a volume was plugged in", []string(nil), b.applied(b.machine(1, "root", "data")))
	b.applied(b.machine(1, "root"))
	equal(t, "without data", "Always, 1 cores, disks [root plugged], networks [default], identity kept", b.describe())
	b.applied(b.machine(1, "root", "more", "data"))
	equal(t, "with more", "Always, 1 cores, disks [root more data plugged], networks [default], identity kept", b.describe())
	equal(t, "requests at rest", []string(nil), b.applied(b.machine(1, "root", "more", "data")))
}

// TestNetworksOfOthersAreKept like volumes.
func TestNetworksOfOthersAreKept(t *testing.T) {
	b := newVMBench(t)
	b.applied(b.machine(1, "root"))
	foreign(t, b.machine(1), func(vm *kubevirtv1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.Networks = append(spec.Networks, kubevirtv1.Network{Name: "lan", NetworkSource: kubevirtv1.NetworkSource{Multus: &kubevirtv1.MultusNetwork{NetworkName: "lan"}}})
		spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces, kubevirtv1.Interface{Name: "lan"})
	})
	equal(t, "requests after a network was added", []string(nil), b.applied(b.machine(1, "root")))
	b.applied(b.machine(2, "root"))
	equal(t, "after an update", "Always, 2 cores, disks [root], networks [default lan], identity kept", b.describe())
}
