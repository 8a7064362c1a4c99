package smolvm

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinestep"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/state"
	"github.com/kvm-operator/kvm-operator/resources/smolvm/smolvmmachine"
)

// Store writes the status if it differs.
func (r *Reconciler) Store(ctx context.Context, vm *v1alpha1.SmolVM, s *state.State, results []chain.Result) error {
	updated := vm.DeepCopy()
	updated.Status = status(s, results)
	if equality.Semantic.DeepEqual(vm.Status, updated.Status) {
		if !seenAgain(s) {
			return nil
		}
		// It has had its effect, and would have it again with the next loss. What says so is stored by now.
		return r.engine.RemoveAnnotation(ctx, vm, v1alpha1.AnnotationRecreate)
	}
	stored, err := r.engine.UpdateStatus(ctx, updated)
	if stored {
		observeRun(vm, updated, r.Clock.Now())
		tell(ctx, r.Events, vm, updated)
	}
	return err
}

// seenAgain returns whether the machine is there, and the status says that its state is not lost.
func seenAgain(s *state.State) bool {
	return s.Decidable() && s.Runtime.Reason == "" && s.Runtime.Machine != nil && s.Step.Reason != v1alpha1.ReasonMachineNotOwned &&
		meta.IsStatusConditionFalse(s.VM.Status.Conditions, v1alpha1.ConditionLocalStateLost)
}

// awaiting returns the conditions as they were, with one of them replaced.
func awaiting(s *state.State, r metav1.Condition) []metav1.Condition {
	merged := reconciler.Merge(s.VM.Status.Conditions, []metav1.Condition{r}, s.VM.Generation, s.Now)
	for _, c := range s.VM.Status.Conditions {
		if c.Type != r.Type {
			merged = append(merged, c)
		}
	}
	return merged
}

// merge returns the conditions, with those that do not change.
func merge(s *state.State, wanted []metav1.Condition) []metav1.Condition {
	before := s.VM.Status.Conditions
	for i := range wanted {
		wanted[i].Message = text.Beginning(wanted[i].Message, chain.MostMessage)
	}
	merged := reconciler.Merge(before, wanted, s.VM.Generation, s.Now)
	for _, kind := range []string{v1alpha1.ConditionScheduled, v1alpha1.ConditionLocalStateLost} {
		if c := meta.FindStatusCondition(before, kind); c != nil && meta.FindStatusCondition(wanted, kind) == nil {
			merged = append(merged, *c)
		}
	}
	return merged
}

// reconciled returns what became of the handler of the machine.
func reconciled(results []chain.Result) metav1.Condition {
	i := slices.IndexFunc(results, func(r chain.Result) bool { return r.Handler == smolvmmachine.Name })
	return results[i].Condition(v1alpha1.ConditionReconciled)
}

func condition(kind string, holds metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: holds, Reason: reason, Message: message}
}

func scheduled(node string) metav1.Condition {
	return condition(v1alpha1.ConditionScheduled, metav1.ConditionTrue, v1alpha1.ReasonBound, "assigned to node "+node)
}

// ready returns Ready and RuntimeReady, which are the same.
func ready(holds metav1.ConditionStatus, reason, message string) []metav1.Condition {
	return []metav1.Condition{condition(v1alpha1.ConditionReady, holds, reason, message), condition(v1alpha1.ConditionRuntimeReady, holds, reason, message)}
}

func guest(holds metav1.ConditionStatus, reason, message string) metav1.Condition {
	return condition(v1alpha1.ConditionGuestReady, holds, reason, message)
}

// noMachine is the message of GuestReady before there is a machine.
const noMachine = "there is no machine"

// startFailed returns whether the machine does not run because its start has failed.
func startFailed(s *state.State, r metav1.Condition) bool {
	return s.Step.Action == machinestep.Start && r.Reason != v1alpha1.ReasonStartPending && r.Reason != s.Step.Reason
}

// guestReady says whether the agent in the guest answers. The state running implies that it does, also with smolvm.
func guestReady(s *state.State, r metav1.Condition) metav1.Condition {
	const no = metav1.ConditionFalse
	m := s.Runtime.Machine
	switch {
	case s.Runtime.Reason == "" && m == nil:
		return guest(metav1.ConditionUnknown, v1alpha1.ReasonGuestReadinessUnavailable, noMachine)
	case s.Runtime.Reason != "" || s.Step.Reason == v1alpha1.ReasonMachineNotOwned:
		return guest(metav1.ConditionUnknown, v1alpha1.ReasonGuestReadinessUnavailable, "not reported by the runtime")
	case m.State == api.StateRunning:
		return guest(metav1.ConditionTrue, v1alpha1.ReasonAgentAnswers, "the agent in the guest answers; "+workload(m))
	case m.State == api.StateUnreachable:
		return guest(no, v1alpha1.ReasonAgentSilent, "the machine runs, and the agent in the guest does not answer")
	case s.Step.Action == machinestep.Start && !startFailed(s, r):
		return guest(no, v1alpha1.ReasonBooting, "the guest is being started")
	}
	return guest(no, v1alpha1.ReasonGuestStopped, "the guest does not run; "+workload(m))
}
