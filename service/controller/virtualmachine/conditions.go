package virtualmachine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// Conditions of a VirtualMachine besides Ready, Reconciling and Stalled.
const (
	// ConditionDeclaration says what in the declaration has no effect, or cannot be carried out.
	ConditionDeclaration = "DeclarationAccepted"
	// ConditionObjects is about the objects of the machine: Secret, ConfigMap and StatefulSet.
	ConditionObjects = virtualmachine.ConditionObjects
	// ConditionDisks is True when every claim is bound.
	ConditionDisks = "DisksBound"
	// ConditionRunning is True while the machine's QEMU runs, as with VM-Operator.
	ConditionRunning = "Running"
	// ConditionBooted is True while the guest agent answers, as with VM-Operator.
	ConditionBooted = "Booted"
	// ConditionChanges is False while a running machine is not what is declared, although that needs no restart.
	ConditionChanges = virtualmachine.ConditionChanges
	// ConditionRestart exists, and is True, while changes wait for the next start of the machine.
	ConditionRestart = "RestartRequired"
)

var areas = []string{ConditionDeclaration, ConditionObjects, ConditionDisks, ConditionChanges}

func conditions(s *virtualmachine.State, results []chain.Result) []metav1.Condition {
	wanted := reconciler.Summarize(results, nil, false)
	for _, area := range areas {
		of := slices.DeleteFunc(slices.Clone(results), func(r chain.Result) bool { return r.Area != area })
		if c, ok := reconciler.Condition(area, of); ok {
			wanted = append(wanted, c)
		}
	}
	wanted = append(wanted, running(s), booted(s))
	if fields := s.RestartFor(); len(fields) > 0 {
		wanted = append(wanted, metav1.Condition{
			Type: ConditionRestart, Status: metav1.ConditionTrue, Reason: "FieldsChanged",
			Message: fmt.Sprintf("%s: a change takes effect when the machine starts the next time; set spec.vm.state to Stopped, then to Running", strings.Join(fields, ", ")),
		})
	}
	return reconciler.Merge(s.VM.Status.Conditions, wanted, s.VM.Generation, s.Now)
}

// running returns the condition of VM-Operator's name: True from the start of QEMU until its end, and Unknown while the
// host does not say.
func running(s *virtualmachine.State) metav1.Condition {
	c := metav1.Condition{Type: ConditionRunning, Status: metav1.ConditionFalse, Reason: "VmStopped", Message: "the machine is stopped"}
	switch reason, message := s.Obstacle(); {
	case s.Serves() && s.Wanted():
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "VmStarted", "the machine runs"
	case reason == virtualmachine.ReasonShuttingDown:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "VmTerminating", message
	case reason == virtualmachine.ReasonHostSilent:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, reason, message
	case reason != "":
		c.Reason, c.Message = reason, message
	}
	// A host may say anything of a container, and the API takes no status with a message that is too long.
	c.Message = text.Beginning(c.Message, chain.MostMessage)
	return c
}

// booted returns the condition of VM-Operator's name: True while the guest agent answers. While the operator has no link
// with the runner, it does not change.
func booted(s *virtualmachine.State) metav1.Condition {
	c := running(s)
	c.Type, c.Status = ConditionBooted, metav1.ConditionFalse
	if !s.Serves() {
		return c
	}
	before := meta.FindStatusCondition(s.VM.Status.Conditions, ConditionBooted)
	switch {
	case s.OS() != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "VmBooted", "the guest agent answers"
	case s.Link.Report == nil && before != nil:
		c.Status, c.Reason, c.Message = before.Status, before.Reason, before.Message
	case s.Wanted():
		c.Message = "no guest agent answers"
	}
	return c
}

// Store writes the status if it differs.
func (r *Reconciler) Store(ctx context.Context, vm *v1.VirtualMachine, s *virtualmachine.State, results []chain.Result) error {
	updated := vm.DeepCopy()
	updated.Status = status(s, results)
	if equality.Semantic.DeepEqual(vm.Status, updated.Status) {
		return nil
	}
	stored, err := r.engine.UpdateStatus(ctx, updated)
	if stored {
		tell(ctx, vm, updated)
	}
	return err
}
