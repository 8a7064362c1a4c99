package machines_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// TestAMediumMachineGetsItsClaimAndItsVirtualMachine is scenario 1: what is written, field by field.
func TestAMediumMachineGetsItsClaimAndItsVirtualMachine(t *testing.T) {
	p := together(t)
	m := p.machine("build-agent", "{template: medium}", func(m *v1alpha1.Machine) {
		m.Labels = map[string]string{v1alpha1.LabelCluster: "shop"}
	})
	p.await(m, runs)
	if !slices.Contains(m.Finalizers, v1alpha1.Finalizer) {
		t.Errorf("the finalizers are %v", m.Finalizers)
	}
	claim := get(p, "build-agent-root", &corev1.PersistentVolumeClaim{})
	if size := claim.Spec.Resources.Requests[corev1.ResourceStorage]; size.String() != "40Gi" {
		t.Errorf("the claim has %s", size.String())
	}
	if modes := claim.Spec.AccessModes; len(modes) != 1 || modes[0] != corev1.ReadWriteOnce || *claim.Spec.StorageClassName != "standard" {
		t.Errorf("the claim has access modes %v and class %s", modes, *claim.Spec.StorageClassName)
	}
	vm := p.vm(m)
	labels := map[string]string{
		v1alpha1.LabelManagedBy: "kubevirt-operator", v1alpha1.LabelMachine: m.Name, v1alpha1.LabelSourceMachine: m.Name,
		v1alpha1.LabelCluster: "shop",
	}
	has := func(what string, object map[string]string, more ...string) {
		for name, value := range labels {
			if object[name] != value {
				t.Errorf("label %s of the %s is %q, want %q", name, what, object[name], value)
			}
		}
		for _, name := range more {
			if object[name] == "" {
				t.Errorf("the %s has no label %s", what, name)
			}
		}
	}
	has("claim", claim.Labels, v1alpha1.LabelDiskType)
	has("VirtualMachine", vm.Labels, v1alpha1.LabelTemplate)
	has("template", vm.Spec.Template.ObjectMeta.Labels, v1alpha1.LabelTemplate)
	has("guest", p.vmi(m).Labels)
	for _, object := range []metav1.Object{claim, vm} {
		if owner := metav1.GetControllerOf(object); owner == nil || owner.UID != m.UID || owner.Kind != "Machine" {
			t.Errorf("the owner of %s is %v", object.GetName(), owner)
		}
	}
	checkHardware(t, vm)
}

// checkHardware checks the VirtualMachine of a Machine with nothing but a template of medium size.
func checkHardware(t *testing.T, vm *kubevirtv1.VirtualMachine) {
	t.Helper()
	spec := &vm.Spec.Template.Spec
	if strategy, err := vm.RunStrategy(); err != nil || strategy != kubevirtv1.RunStrategyAlways {
		t.Errorf("the run strategy is %s (%v)", strategy, err)
	}
	cpu := spec.Domain.CPU
	if cpu == nil || cpu.Cores != 2 || cpu.Threads != 1 || cpu.Sockets != 1 || spec.Domain.Memory.Guest.String() != "4Gi" {
		t.Errorf("the processors are %+v and the memory is %+v", cpu, spec.Domain.Memory)
	}
	disks, volumes := spec.Domain.Devices.Disks, spec.Volumes
	if len(disks) != 1 || disks[0].Name != "root" || disks[0].Disk.Bus != kubevirtv1.DiskBusVirtio || *disks[0].BootOrder != 1 {
		t.Errorf("the disks are %+v", disks)
	}
	if len(volumes) != 1 || volumes[0].PersistentVolumeClaim.ClaimName != vm.Name+"-root" {
		t.Errorf("the volumes are %+v", volumes)
	}
	nics, networks := spec.Domain.Devices.Interfaces, spec.Networks
	if len(nics) != 1 || nics[0].Name != "default" || nics[0].Masquerade == nil || nics[0].MacAddress == "" {
		t.Errorf("the interfaces are %+v", nics)
	}
	if len(networks) != 1 || networks[0].Pod == nil {
		t.Errorf("the networks are %+v", networks)
	}
}

// size is what a spec leads to.
type size struct {
	cores, threads, sockets uint32
	memory                  string
	// disks are "name size mode volumeMode".
	disks []string
}

// sizes are scenario 2: templates, what replaces their values, and how disks merge.
var sizes = map[string]struct {
	spec string
	want size
}{
	"small":  {"{template: small}", size{1, 1, 1, "2Gi", []string{"root 20Gi ReadWriteOnce Filesystem"}}},
	"large":  {"{template: large}", size{4, 1, 1, "8Gi", []string{"root 80Gi ReadWriteOnce Filesystem"}}},
	"cores":  {"{template: medium, resources: {cpu: {cores: 4}, memory: {size: 8Gi}}}", size{4, 1, 1, "8Gi", []string{"root 40Gi ReadWriteOnce Filesystem"}}},
	"all":    {"{template: small, resources: {cpu: {cores: 2, threads: 2, sockets: 2}}}", size{2, 2, 2, "2Gi", []string{"root 20Gi ReadWriteOnce Filesystem"}}},
	"bigger": {"{template: small, disks: [{name: root, size: 50Gi}]}", size{1, 1, 1, "2Gi", []string{"root 50Gi ReadWriteOnce Filesystem"}}},
	"more": {
		"{template: small, disks: [{name: data, size: 200Gi, storageClass: standard, accessMode: ReadWriteMany, volumeMode: Block}]}",
		size{1, 1, 1, "2Gi", []string{"root 20Gi ReadWriteOnce Filesystem", "data 200Gi ReadWriteMany Block"}},
	},
	"own": {"{resources: {memory: {size: 1Gi}}, disks: [{name: system, size: 5Gi}]}", size{2, 1, 1, "1Gi", []string{"system 5Gi ReadWriteOnce Filesystem"}}},
	"vitistack": {
		"{provider: kubevirt, cpu: {cores: 3}, memory: 6442450944, disks: [{name: root, sizeGB: 40, boot: true}]}",
		size{3, 1, 1, "6Gi", []string{"root 40Gi ReadWriteMany Block"}},
	},
}

func TestSpecsReplaceValuesOfTemplatesAndDisksMerge(t *testing.T) {
	p := together(t)
	machines := map[string]*v1alpha1.Machine{}
	for name, c := range sizes {
		machines[name] = p.machine(name, c.spec)
	}
	for name, c := range sizes {
		m := machines[name]
		p.await(m, runs)
		spec := p.vm(m).Spec.Template.Spec
		got := size{cores: spec.Domain.CPU.Cores, threads: spec.Domain.CPU.Threads, sockets: spec.Domain.CPU.Sockets, memory: spec.Domain.Memory.Guest.String()}
		for _, v := range spec.Volumes {
			claim := get(p, m.Name+"-"+v.Name, &corev1.PersistentVolumeClaim{})
			request := claim.Spec.Resources.Requests[corev1.ResourceStorage]
			got.disks = append(got.disks, fmt.Sprintf("%s %s %s %s", v.Name, request.String(), claim.Spec.AccessModes[0], *claim.Spec.VolumeMode))
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s leads to %v, want %v", c.spec, got, c.want)
		}
	}
}
