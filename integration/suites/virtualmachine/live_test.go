package virtualmachine_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// TestRunningMachineChanges: what needs no restart is ordered, also by the next operator, and what the runner cannot do
// is said.
func TestRunningMachineChanges(t *testing.T) {
	operator := serve(t)
	vm := machine("changing")
	vm.Spec.VM.State, vm.Spec.VM.Disks = v1.StateRunning, nil
	vm.Spec.VM.MaximumCPUs, vm.Spec.VM.CurrentCPUs = ptr.To[int32](4), ptr.To[int32](2)
	vm.Spec.VM.MaximumRAM, vm.Spec.VM.CurrentRAM = "4Gi", ptr.To("2Gi")
	theLab.Create(t, vm)
	await(t, vm, "running as declared", func() error {
		return all(phaseIs(t, vm, v1.PhaseRunning), isTrue(t, vm, "Ready"), has(t, vm, 2, "2Gi"))
	})
	pod := podOf(vm)
	theLab.Get(t, pod)

	lab.Change(t, theLab, vm, func(vm *v1.VirtualMachine) {
		vm.Spec.VM.CurrentCPUs, vm.Spec.VM.CurrentRAM = ptr.To[int32](3), ptr.To("3Gi")
	})
	await(t, vm, "larger", func() error {
		return all(has(t, vm, 3, "3Gi"), isTrue(t, vm, "Ready"), isTrue(t, vm, "ChangesApplied"))
	})

	theRunners.Fail(pod.Name, vmconfig.PartRAM, "the guest keeps it")
	lab.Change(t, theLab, vm, func(vm *v1.VirtualMachine) { vm.Spec.VM.CurrentRAM = ptr.To("1Gi") })
	await(t, vm, "with a problem", func() error {
		c := meta.FindStatusCondition(current(t, vm).Status.Conditions, "ChangesApplied")
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "MemoryNotAdjusted" {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
	theRunners.Fail(pod.Name, "", "")

	// What exceeds the machine waits for a restart, and the rest does not.
	lab.Change(t, theLab, vm, func(vm *v1.VirtualMachine) {
		vm.Spec.VM.MaximumCPUs, vm.Spec.VM.CurrentCPUs, vm.Spec.VM.CurrentRAM = ptr.To[int32](8), ptr.To[int32](8), ptr.To("2Gi")
	})
	await(t, vm, "as large as it can be", func() error {
		return all(has(t, vm, 4, "2Gi"), isTrue(t, vm, "RestartRequired"), isTrue(t, vm, "ChangesApplied"))
	})
	again := podOf(vm)
	if theLab.Get(t, again); again.UID != pod.UID {
		t.Error("the pod was replaced because of a change")
	}

	operator.Stop()
	ordered := theRunners.Ordered()
	serve(t)
	await(t, vm, "linked with the next operator", func() error {
		if theRunners.Ordered() == ordered {
			return fmt.Errorf("nothing was ordered")
		}
		return all(has(t, vm, 4, "2Gi"), isTrue(t, vm, "ChangesApplied"))
	})
	theLab.Delete(t, vm)
}

func has(t *testing.T, vm *v1.VirtualMachine, cpus int32, ram string) error {
	t.Helper()
	if got := current(t, vm).Status; got.CPUs != cpus || got.RAM != ram {
		return fmt.Errorf("it has %d CPUs and %s", got.CPUs, got.RAM)
	}
	return nil
}
