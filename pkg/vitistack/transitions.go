package vitistack

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// Event is an Event about a Machine.
type Event struct {
	// Type is Normal or Warning.
	Type string
	// Reason is one of v1alpha1.Event… or an error type.
	Reason string
	// Message has at most 1024 bytes, which is what the API accepts.
	Message string
}

// mostNote is the maximum length of the note of an Event.
const mostNote = 1024

// Types returns the error types that a status shows, in the order of v1alpha1.ErrorTypes: the reason of Ready, and the
// others before its message if there are several.
func Types(status v1alpha1.MachineStatus) []string {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	known := v1alpha1.ErrorTypes()
	if c == nil || !slices.Contains(known, c.Reason) {
		if slices.Contains(known, status.FailureReason) {
			return []string{status.FailureReason}
		}
		return nil
	}
	listed, _, _ := strings.Cut(c.Message, ": ")
	types := strings.Split(listed, ", ")
	if types[0] != c.Reason || slices.ContainsFunc(types, func(t string) bool { return !slices.Contains(known, t) }) {
		return []string{c.Reason}
	}
	return types
}

// Errors returns the error types that a status shows and an earlier one did not, each once: those that a metric counts.
func Errors(old, next v1alpha1.MachineStatus) []string {
	before := Types(old)
	return slices.DeleteFunc(Types(next), func(t string) bool { return slices.Contains(before, t) })
}

// Transitions returns the Events for the change from one status to the next: one for each thing that happened, and one
// Warning for each error type that is new.
func Transitions(old, next v1alpha1.MachineStatus) []Event {
	var events []Event
	normal := func(happened bool, reason, message string) {
		if happened {
			events = append(events, Event{Type: corev1.EventTypeNormal, Reason: reason, Message: text.Beginning(message, mostNote)})
		}
	}
	became := func(kind string) bool {
		return meta.IsStatusConditionTrue(next.Conditions, kind) && !meta.IsStatusConditionTrue(old.Conditions, kind)
	}
	normal(became(v1alpha1.ConditionNetworkReady), v1alpha1.EventNetworkConfigured, "all networks are ready")
	normal(hasClaims(next) && !hasClaims(old), v1alpha1.EventPVCCreated, "the claims of the disks are created")
	normal(old.VMName == "" && next.VMName != "", v1alpha1.EventVMCreated, "VirtualMachine "+next.VMName+" is created")
	entered := func(phase string) bool { return next.Phase == phase && old.Phase != phase }
	normal(entered(v1alpha1.PhaseRunning), v1alpha1.EventRunning, "the guest runs on node "+next.NodeName)
	normal(entered(v1alpha1.PhaseStopped), v1alpha1.EventStopped, "the guest is stopped")
	restarting := func(status v1alpha1.MachineStatus) bool {
		c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAwaitingRestart)
		return c != nil && c.Reason == v1alpha1.ReasonRestarting
	}
	normal(restarting(next) && !restarting(old), v1alpha1.EventRestarting, "the operator restarts the guest, because the restart was approved")

	for _, t := range Errors(old, next) {
		events = append(events, Event{Type: corev1.EventTypeWarning, Reason: t, Message: text.Beginning(explanation(next, t), mostNote)})
	}
	return events
}

// CleanedUp returns the Event for the end of a Machine, whose status is gone with it.
func CleanedUp() Event {
	return Event{Type: corev1.EventTypeNormal, Reason: v1alpha1.EventCleanedUp, Message: "everything of the Machine is deleted"}
}

// hasClaims returns whether a status says that the claims exist: they are bound, or the VirtualMachine exists, which is
// made after them.
func hasClaims(status v1alpha1.MachineStatus) bool {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionStorageReady)
	if c == nil || c.Message == noClaims {
		return false
	}
	return c.Status == metav1.ConditionTrue || status.VMName != ""
}

// explanation returns what a status says about an error type.
func explanation(status v1alpha1.MachineStatus, errorType string) string {
	if status.FailureReason == errorType {
		return status.FailureMessage
	}
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.Message
	}
	return errorType
}
