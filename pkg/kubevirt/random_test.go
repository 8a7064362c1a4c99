package kubevirt_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/helm"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/kubevirt"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/schema"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// dice makes Machines by chance, the same ones with the same seed.
type dice struct{ *rand.Rand }

func pick[T any](d dice, values ...T) T { return values[d.IntN(len(values))] }

// maybe returns a value that is often left out.
func maybe[T any](d dice, values ...T) T {
	var none T
	if d.IntN(3) > 0 {
		return none
	}
	return pick(d, values...)
}

func some[T any](d dice, most int, one func(i int) T) []T {
	var all []T
	for i := range d.IntN(most + 1) {
		all = append(all, one(i))
	}
	return all
}

func (d dice) quantity() v1alpha1.Quantity {
	return maybe(d, v1alpha1.Quantity("1Gi"), "500M", "40Gi", "1.5Gi", "2e9", "1")
}

func (d dice) disk(i int) v1alpha1.Disk {
	disk := v1alpha1.Disk{
		Name: pick(d, "root", "data", fmt.Sprintf("disk-%d", i)), Size: d.quantity(), SizeGB: maybe[int64](d, 1, 65536), StorageClass: maybe(d, "default", "fast", "gone"),
		AccessMode: maybe(d, "ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"), VolumeMode: maybe(d, "Block", "Filesystem"),
		Type: maybe(d, "sata", "scsi", "nvme"), Boot: maybe(d, true),
	}
	switch d.IntN(8) {
	case 0:
		disk.Source = &v1alpha1.DiskSource{PVC: &v1alpha1.ObjectReference{Name: "golden"}}
	case 1:
		disk.Source = &v1alpha1.DiskSource{Snapshot: &v1alpha1.ObjectReference{Name: "golden"}}
	case 2:
		disk = v1alpha1.Disk{Name: disk.Name, Boot: disk.Boot, Source: &v1alpha1.DiskSource{ContainerDisk: &v1alpha1.ContainerDisk{Image: "registry.example.org/a"}}}
	}
	return disk
}

func (d dice) network(i int) v1alpha1.Network {
	return v1alpha1.Network{
		Name: pick(d, "eth0", fmt.Sprintf("net_%d", i)), NetworkName: pick(d, "lan", "pods", "failed", "gone"), Model: maybe(d, "virtio", "e1000", "igb"),
		MACAddress: maybe(d, "52:54:00:aa:00:01", "52-54-00-AA-00-01", "52:54:00:aa:00:02", "02:00:00:00:00:07"),
	}
}

func (d dice) reference() *v1alpha1.DataReference {
	return maybe(d, &v1alpha1.DataReference{Name: "boot"}, &v1alpha1.DataReference{Name: "boot", Key: "other"}, &v1alpha1.DataReference{Name: "gone"})
}

func (d dice) cloudInit() *v1alpha1.CloudInit {
	return maybe(d, &v1alpha1.CloudInit{
		UserData: maybe(d, "u", string(make([]byte, 2049))), NetworkData: maybe(d, "n", string(make([]byte, 2049))), UserDataBase64: maybe(d, "dQ==", "%", "/w=="),
		Type: maybe(d, "noCloud", "configDrive"), SecretRef: d.reference(), UserDataSecretRef: d.reference(), UserDataConfigMapRef: d.reference(),
		NetworkDataSecretRef: d.reference(), NetworkDataConfigMapRef: d.reference(),
	})
}

func (d dice) domain() v1alpha1.Domain {
	yes, no := true, false
	domain := v1alpha1.Domain{Machine: v1alpha1.MachineType{Type: maybe(d, "q35", "pc-q35", "pc-i440fx")}, Features: v1alpha1.Features{ACPI: maybe(d, &yes, &no), APIC: maybe(d, &yes, &no), HyperV: maybe(d, true)}}
	domain.Firmware.Bootloader = maybe(d, &v1alpha1.Bootloader{}, &v1alpha1.Bootloader{EFI: &yes}, &v1alpha1.Bootloader{EFI: &no}, &v1alpha1.Bootloader{EFI: &yes, SecureBoot: true})
	return domain
}

func (d dice) machine(i int) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ci", Name: fmt.Sprintf("m-%d", i), UID: types.UID(fmt.Sprintf("8f6f0c2e-6f7e-4a0e-9d5c-%012d", i)),
		Labels: maybe(d, map[string]string{v1alpha1.LabelCluster: "shop"}, map[string]string{v1alpha1.LabelTemplate: "large"}),
	}}
	m.Spec = v1alpha1.MachineSpec{
		Template: pick(d, "", "small", "medium", "huge"), MachineClass: maybe(d, "c", "disabled", "gone"), Provider: maybe(d, "kubevirt", "proxmox"),
		CPU: v1alpha1.ClassicCPU{Cores: maybe[int32](d, 1, 256), ThreadsPerCore: maybe[int32](d, 8)}, Memory: maybe[int64](d, 1, 1<<30),
		Resources: v1alpha1.Resources{CPU: v1alpha1.CPU{Cores: maybe[int32](d, 4), Threads: maybe[int32](d, 2), Sockets: maybe[int32](d, 16)}, Memory: v1alpha1.Memory{Size: d.quantity()}},
		Disks:     some(d, 3, d.disk), Networks: some(d, 2, d.network), CloudInit: d.cloudInit(), Domain: d.domain(),
		BootOrder: pick(d, nil, []string{"network"}, []string{"cdrom", "disk"}, []string{"network", "disk", "cdrom"}),
		OS:        maybe(d, &runtime.RawExtension{Raw: []byte(`{"imageID":"x"}`)}, &runtime.RawExtension{Raw: []byte(`{"imageID":{}}`)}),
	}
	if d.IntN(10) == 0 {
		m.DeletionTimestamp, m.Finalizers = &metav1.Time{}, []string{v1alpha1.Finalizer}
	}
	return m
}

// observed returns a world in which some of what Machines name exists.
func (d dice) observed(m *v1alpha1.Machine) vitistack.Observed {
	standard := storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "standard", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}}
	fast := storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}
	named := func(name string, bridge string, status metav1.ConditionStatus) *v1alpha1.NetworkConfiguration {
		nc := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name}, Spec: v1alpha1.NetworkConfigurationSpec{Bridge: bridge}}
		nc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAttachmentReady, Status: status}}
		return nc
	}
	o := vitistack.Observed{
		Machine: m, Settings: settings, StorageClasses: pick(d, []storagev1.StorageClass{fast}, []storagev1.StorageClass{standard, fast}, []storagev1.StorageClass{standard, fast}),
		Networks: map[string]*v1alpha1.NetworkConfiguration{"lan": named("lan", "br1", "True"), "pods": named("pods", "", "True"), "failed": named("failed", "br2", "False")},
		Sources:  map[vitistack.Source][]byte{{Name: "boot", Key: "userdata"}: []byte("u"), {ConfigMap: true, Name: "boot", Key: "networkdata"}: []byte("n")},
		MACs:     maybe(d, map[string]string{"52:54:00:aa:00:02": "other"}), KubeVirt: vitistack.KubeVirt(d.IntN(3)),
		Claims: map[string]*corev1.PersistentVolumeClaim{},
		VM:     maybe(d, &kubevirtv1.VirtualMachine{}, &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Labels: vitistack.Labels(m, settings.ManagedBy)}}),
		VMI:    maybe(d, &kubevirtv1.VirtualMachineInstance{}),
	}
	if m.Spec.MachineClass != "gone" && m.Spec.MachineClass != "" {
		o.Class = &v1alpha1.MachineClass{Spec: v1alpha1.MachineClassSpec{Enabled: m.Spec.MachineClass == "c", CPU: v1alpha1.MachineClassCPU{Cores: 2}, Memory: v1alpha1.MachineClassMemory{Quantity: "1Gi"}}}
	}
	return o
}

// TestRandomMachines: every Machine that the API server accepts is either planned so that KubeVirt accepts it, or has
// problems of known types with a message.
func TestRandomMachines(t *testing.T) {
	definition, err := schema.New(helm.MachineCRD)
	if err != nil {
		t.Fatal(err)
	}
	d := dice{rand.New(rand.NewPCG(7, 11))}
	accepted, right, types := 0, 0, map[string]int{}
	for i := range 2000 {
		m := d.machine(i)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(m)
		if err != nil {
			t.Fatal(err)
		}
		if definition.Complete(t.Context(), content) != nil {
			continue
		}
		accepted++
		s := vitistack.Plan(d.observed(m))
		vm := kubevirt.VirtualMachine(m, s.Wanted, settings)
		if len(s.Problems) == 0 {
			right++
			checkRules(t, m.Name, vm)
		}
		order := -1
		for _, p := range s.Problems {
			types[p.Type]++
			at := slices.Index(v1alpha1.ErrorTypes(), p.Type)
			if at < order || at < 0 || p.Message == "" {
				t.Errorf("%s: problem %+v", m.Name, p)
			}
			order = at
		}
		// What is read for the pass must not depend on what was read.
		vitistack.SourcesOf(m)
		vitistack.ClaimsOf(m, settings, s.VM)
		vitistack.TakenMACs(m, settings.MACSet, []v1alpha1.Machine{*m})
		s.PendingNetworks()
		s.Referring()
	}
	t.Logf("%d Machines accepted by the schema, %d of them without problems; problems %v", accepted, right, types)
	if accepted < 500 || right < 30 || len(types) < 7 {
		t.Error("these are too few to say anything")
	}
}
