package virtualmachine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// TestMachineTypeIsThatOfTheFirstStart, without a restart for it, until the user declares one.
func TestMachineTypeIsThatOfTheFirstStart(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "try"}}
	vm.Spec.VM.State, vm.Spec.VM.MaximumRAM, vm.Spec.VM.Firmware = v1.StateRunning, "1Gi", v1.FirmwareBIOS
	template, err := Plan(Observed{VM: vm}).Template()
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "try-0", Annotations: template.Annotations}, Spec: template.Spec}
	reported := func(name string) Observed {
		return Observed{VM: vm, Pod: pod, Link: Link{Report: &vmconfig.Report{MachineType: name}}}
	}
	for _, hostile := range []string{"", "q35", "pc-i440fx-9.0", "pc-q35-10.0,x=y", "pc-q35-10.0\n"} {
		if got := Plan(reported(hostile)).MachineType(); got != "" {
			t.Errorf("%q is taken as %q", hostile, got)
		}
	}
	if vm.Status.MachineType = Plan(reported("pc-q35-10.0")).MachineType(); vm.Status.MachineType != "pc-q35-10.0" {
		t.Fatalf("at the first start it is %q", vm.Status.MachineType)
	}
	later := Plan(reported("pc-q35-11.0"))
	if later.MachineType() != "pc-q35-10.0" || later.Machine.Type != "pc-q35-10.0" || len(later.RestartFor()) > 0 {
		t.Errorf("later it is %q, for the next start %q, and needs a restart for %v", later.MachineType(), later.Machine.Type, later.RestartFor())
	}
	vm.Spec.VM.MachineType = ptr.To("pc-q35-9.2")
	declared := Plan(reported("pc-q35-10.0"))
	if fields := declared.RestartFor(); declared.Machine.Type != "pc-q35-9.2" || len(fields) != 1 || fields[0] != "vm.machineType" {
		t.Errorf("declared, it is %q, and needs a restart for %v", declared.Machine.Type, fields)
	}
}
