package machine

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/kubevirt"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// TestAThousandMachinesFitIntoMemory: the caches of 1,000 Machines with claim, VirtualMachine and instance take at most
// 40 MiB.
func TestAThousandMachinesFitIntoMemory(t *testing.T) {
	const machines, most = 1000, 40 << 20
	var kept []any
	before := heap()
	for i := range machines {
		for _, object := range objectsOf(t, fmt.Sprintf("machine-%04d", i)) {
			trimmed, err := Trim(object)
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, trimmed)
		}
	}
	used := heap() - before
	runtime.KeepAlive(kept)
	t.Logf("%d Machines take %.1f MiB", machines, float64(used)/(1<<20))
	if used > most {
		t.Errorf("%d Machines take %d bytes, want at most %d", machines, used, most)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// objectsOf returns the objects of a Machine as a cache decodes them, with the managed fields of an API server.
func objectsOf(t *testing.T, name string) []client.Object {
	t.Helper()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: "5d307ca9-b3ef-428c-8861-06e72d69f223"}, Spec: v1alpha1.MachineSpec{
		Template: "medium", Disks: []v1alpha1.Disk{{Name: "data", Size: "100Gi"}},
		CloudInit: &v1alpha1.CloudInit{UserData: string(make([]byte, 1000))},
	}}
	s := vitistack.Plan(vitistack.Observed{Machine: m, Settings: vitistack.Settings{ManagedBy: "kubevirt-operator"}})
	vm := kubevirt.VirtualMachine(m, s.Wanted, s.Settings)
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: *vm.ObjectMeta.DeepCopy(), Spec: *vm.Spec.Template.Spec.DeepCopy()}
	vmi.Status.Phase, vmi.Status.NodeName = kubevirtv1.Running, "node-a"
	for _, kind := range []string{"Ready", "LiveMigratable", "AgentConnected", "StorageLiveMigratable"} {
		vmi.Status.Conditions = append(vmi.Status.Conditions, kubevirtv1.VirtualMachineInstanceCondition{Type: kubevirtv1.VirtualMachineInstanceConditionType(kind), Status: corev1.ConditionTrue})
	}
	vmi.Status.Interfaces = []kubevirtv1.VirtualMachineInstanceNetworkInterface{{Name: "default", MAC: "02:12:00:00:00:01", IP: "10.0.0.1", IPs: []string{"10.0.0.1", "fd00::1"}}}
	m.Status = vitistack.Status(s, nil)
	objects := []client.Object{m, vm, vmi}
	for _, disk := range []string{"root", "data"} {
		objects = append(objects, &corev1.PersistentVolumeClaim{ObjectMeta: s.ObjectMeta(name+"-"+disk, nil)})
	}
	for i, object := range objects {
		object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "virt-controller", FieldsV1: metav1.NewFieldsV1(`{"f:status":"` + fmt.Sprintf("%01000d", i) + `"}`)}})
		written, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		decoded := object.DeepCopyObject().(client.Object)
		if err := json.Unmarshal(written, decoded); err != nil {
			t.Fatal(err)
		}
		objects[i] = decoded
	}
	return objects
}

// TestTrimKeepsWhatIsObserved: what KubeVirt says about a guest is the same from a trimmed object.
func TestTrimKeepsWhatIsObserved(t *testing.T) {
	objects := objectsOf(t, "a")
	vm, vmi := objects[1].(*kubevirtv1.VirtualMachine), objects[2].(*kubevirtv1.VirtualMachineInstance)
	vm.UID = "1"
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirtv1.VirtualMachineGroupVersionKind)}
	vm.Status.PrintableStatus = kubevirtv1.VirtualMachineStatusRunning
	vm.Status.Conditions = []kubevirtv1.VirtualMachineCondition{{Type: kubevirtv1.VirtualMachineRestartRequired, Status: corev1.ConditionTrue, Message: "cores"}}
	vmi.Status.GuestOSInfo = kubevirtv1.VirtualMachineInstanceGuestOSInfo{Name: "Debian"}
	vm.Spec.Template.Spec.Domain.CPU.Cores++
	vm.Spec.Template.Spec.Networks, vm.Spec.Template.Spec.Volumes = nil, vm.Spec.Template.Spec.Volumes[:1]
	seen := func() string { return fmt.Sprintf("%+v %q", kubevirt.Observe(vm, vmi), kubevirt.Pending(vm, vmi)) }
	before := seen()
	for _, object := range []client.Object{vm, vmi} {
		// client-go passes some objects twice.
		for range 2 {
			if _, err := Trim(object); err != nil {
				t.Fatal(err)
			}
		}
	}
	if after := seen(); after != before {
		t.Errorf("observed before\n%s\nafter\n%s", before, after)
	}
}
