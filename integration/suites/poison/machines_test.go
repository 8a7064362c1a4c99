package poison_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	vmoperatorv1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/service"
)

// TestVirtualMachineThatCannotBeDecoded is reported, and reconciled again once it is corrected.
func TestVirtualMachineThatCannotBeDecoded(t *testing.T) {
	theLab.Run(t, func(c *service.Config) {
		c.VirtualMachines = &virtualmachine.Settings{RunnerImage: "example.org/runner:1"}
	})
	vm := &vmoperatorv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "odd"}}
	vm.Spec.VM.MaximumCPUs, vm.Spec.VM.MaximumRAM = ptr.To[int32](1), "1Gi"
	theLab.Create(t, vm)
	awaitSaid(t, vm, "ObjectsReady", "True")
	restore := loosen(t, machines)
	set(t, vm, "spec.vm.powerdownTimeout", "99999999999")
	awaitSaid(t, vm, "Ready", "False InvalidObject", "spec.vm.powerdownTimeout", "the operator leaves the machine as it is")
	awaitEvents(t, vm.Name, "spec.vm.powerdownTimeout", 1)
	set(t, vm, "spec.vm.powerdownTimeout", "90")
	restore()
	awaitSaid(t, vm, "Ready", "True")
	theLab.Delete(t, vm)
}
