package vitistack

import (
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Status returns the status of the Machine after a pass whose handlers had the results. It is computed from the state:
// of the status until now, only the phase counts, and that only where KubeVirt does not know the guest's. Without a
// substantive change it is exactly the status until now, so that it need not be written.
func Status(s *State, results []chain.Result) v1alpha1.MachineStatus {
	old := s.Machine.Status.DeepCopy()
	next := old.DeepCopy()
	switch {
	case s.Machine.DeletionTimestamp != nil:
		deleted(s, results, next)
	case s.KubeVirt == Unknown:
		unknown(s, next)
	default:
		alive(s, results, next)
	}
	if !Substantive(*old, *next) {
		return *old
	}
	now := s.now()
	next.LastUpdated, next.ResourceVersion = &now, s.Machine.ResourceVersion
	return *next
}

// Substantive returns whether a status differs from an earlier one in another field than lastUpdated and
// resourceVersion, which is when it has to be written. These two change with every write, and each write makes a pass.
func Substantive(old, next v1alpha1.MachineStatus) bool {
	old.LastUpdated, old.ResourceVersion = next.LastUpdated, next.ResourceVersion
	return !apiequality.Semantic.DeepEqual(old, next)
}

// now returns the time in the precision of the API.
func (s *State) now() metav1.Time { return metav1.NewTime(s.Now).Rfc3339Copy() }

// deleted fills in the status of a Machine that is being deleted. It keeps what was known until the VirtualMachine is
// gone, so that an address is not free before its guest has ended, and so that a deletion costs two writes at most. The
// status of a deletion that takes long says what it waits for.
func deleted(s *State, results []chain.Result, status *v1alpha1.MachineStatus) {
	status.Phase = orElse(status.Phase, v1alpha1.PhasePending)
	status.ObservedGeneration, status.Provider = s.Machine.Generation, v1alpha1.Provider
	if s.KubeVirt != Unknown && !s.Observation.Created {
		status.VMName = ""
		tellGuest(s, Observation{}, status)
		status.State = ""
	}
	problems, message := Problems(s, results), "the Machine is being deleted"
	tellFailure(problems, status)
	if len(problems) > 0 {
		message += "; " + summary(problems)
	} else if waiting := waits(results); waiting != "" && s.Now.Sub(s.Machine.DeletionTimestamp.Time) > longDeletion {
		message += "; " + waiting
	}
	put(s, status, v1alpha1.ConditionReady, isFalse(v1alpha1.ReasonTerminating, message))
}

// longDeletion is after how long a deletion says what it waits for.
const longDeletion = 2 * time.Minute

// unknown fills in the status while it is not known what KubeVirt has: it keeps the last one, because a restart of the
// operator is no news about the guest.
func unknown(s *State, status *v1alpha1.MachineStatus) {
	if status.Phase != "" && meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady) != nil {
		return
	}
	status.Phase, status.Provider = orElse(status.Phase, v1alpha1.PhasePending), v1alpha1.Provider
	put(s, status, v1alpha1.ConditionReady, isFalse(v1alpha1.ReasonPending, "it is not known yet whether KubeVirt is installed"))
}

// alive fills in the status of a Machine that is not being deleted.
func alive(s *State, results []chain.Result, status *v1alpha1.MachineStatus) {
	o, problems := observed(s, results), Problems(s, results)
	made := resultOf(results, HandlerVirtualMachine).Done()
	waiting := waits(results)
	if made {
		waiting = starts // as in the next pass, which sees the VirtualMachine
	}
	v := withoutVM(problems, made || begun(s, results), waiting)
	if o.Created {
		v = withVM(o, status.Phase)
	}
	if importing := s.importing(); importing != "" && v.reason == v1alpha1.ReasonCreating && !o.Runs() {
		v.message = importing
	}
	status.Phase, status.State, status.Provider = v.phase, v.state, v1alpha1.Provider
	status.ObservedGeneration, status.VMName = s.Machine.Generation, ""
	if o.Created || made {
		status.VMName = s.Machine.Name
	}
	tellGuest(s, o, status)
	tellFailure(problems, status)

	// The operator that was here before left one of these, which the API does not accept.
	meta.RemoveStatusCondition(&status.Conditions, "Unknown")
	put(s, status, v1alpha1.ConditionVirtualMachineReady, vmReady(s, results, o))
	put(s, status, v1alpha1.ConditionStorageReady, storageReady(s, results, o))
	put(s, status, v1alpha1.ConditionNetworkReady, networkReady(s, results))
	put(s, status, v1alpha1.ConditionReady, ready(v, problems, status.Conditions, notes(s, o)))
	put(s, status, v1alpha1.ConditionAwaitingRestart, s.awaitingRestart(o, made))
}

// begun returns whether something of the Machine exists already.
func begun(s *State, results []chain.Result) bool {
	if len(s.labeled()) > 0 {
		return true
	}
	wants := slices.ContainsFunc(s.Wanted.Disks, func(d Disk) bool { return d.Claim != "" })
	return wants && resultOf(results, HandlerStorage).Done()
}

// waits returns what the first handler that is not done waits for, or why it failed.
func waits(results []chain.Result) string {
	for _, r := range results {
		switch {
		case r.Done() || len(r.BlockedBy) > 0:
		case r.Err != nil && failure(r) != "":
			return failure(r)
		case r.Err == nil && r.Outcome.Message != "":
			return r.Outcome.Message
		}
	}
	return ""
}

// ready returns the condition Ready: the first problem, else what the row of the phase table says, else the first other
// condition that is not True.
func ready(v verdict, problems []Problem, conditions []metav1.Condition, notes string) finding {
	f := finding{status: v.ready, reason: v.reason, message: v.message}
	if len(problems) > 0 {
		f = isFalse(problems[0].Type, summary(problems))
	} else if v.ready == metav1.ConditionTrue {
		for _, kind := range []string{v1alpha1.ConditionVirtualMachineReady, v1alpha1.ConditionStorageReady, v1alpha1.ConditionNetworkReady} {
			c := meta.FindStatusCondition(conditions, kind)
			if c == nil {
				f = isFalse(v1alpha1.ReasonPending, kind+" is not known yet")
				break
			}
			if c.Status != metav1.ConditionTrue {
				f = isFalse(c.Reason, c.Message)
				break
			}
		}
	}
	f.message += notes
	return f
}

// notes returns what Ready says besides, which is no failure.
func notes(s *State, o Observation) string {
	var text string
	if c := s.Wanted.CloudInit; c != nil && c.Missing != "" {
		text = "; " + c.Missing
	}
	if o.RestartRequired != "" {
		text += "; RestartRequired: " + o.RestartRequired
	}
	return text
}

// summary returns the text of problems for Ready: their messages. If they are of several types, these come first,
// because the reason names only the first of them.
func summary(problems []Problem) string {
	if types := typesOf(problems); len(types) > 1 {
		return strings.Join(types, ", ") + ": " + list(problems)
	}
	return list(problems)
}

// typesOf returns the types of problems, each once.
func typesOf(problems []Problem) []string {
	var types []string
	for _, p := range problems {
		if !slices.Contains(types, p.Type) {
			types = append(types, p.Type)
		}
	}
	return types
}

// mostFailure is how many characters failureMessage has at most.
const mostFailure = 500

// tellFailure fills in what the first type of problems is, and clears it if there is none.
func tellFailure(problems []Problem, status *v1alpha1.MachineStatus) {
	status.FailureReason, status.FailureMessage = "", ""
	if len(problems) == 0 {
		return
	}
	first := problems[0].Type
	message := []rune(list(slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { return p.Type != first })))
	if len(message) > mostFailure {
		message = append(message[:mostFailure-3], '.', '.', '.')
	}
	status.FailureReason, status.FailureMessage = first, string(message)
}
