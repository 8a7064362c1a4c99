package vitistack

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// finding is the status, reason and message of a condition. The zero value is a condition that is absent, because nothing
// was tried yet.
type finding struct {
	status          metav1.ConditionStatus
	reason, message string
}

func isTrue(reason, message string) finding {
	return finding{status: metav1.ConditionTrue, reason: reason, message: message}
}

func isFalse(reason, message string) finding {
	return finding{status: metav1.ConditionFalse, reason: reason, message: message}
}

// put sets a condition, or removes it if it is absent. Its time changes with its status only.
func put(s *State, status *v1alpha1.MachineStatus, kind string, f finding) {
	if f.status == "" {
		meta.RemoveStatusCondition(&status.Conditions, kind)
		return
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: kind, Status: f.status, Reason: f.reason, Message: text.Beginning(f.message, chain.MostMessage),
		ObservedGeneration: s.Machine.Generation, LastTransitionTime: s.now(),
	})
}

// own returns the result of a handler as its condition has to see it: one that only says again what is wrong with the
// Machine as a whole was not run.
func (s *State) own(results []chain.Result, handler string) chain.Result {
	r := resultOf(results, handler)
	all := leaves(r.Err)
	repeats := func(err error) bool {
		p, ok := classify(handler, err)
		return ok && has(s.Problems, p.Type)
	}
	if len(all) > 0 && !slices.ContainsFunc(all, func(err error) bool { return !repeats(err) }) {
		return chain.Result{Handler: handler, BlockedBy: []string{handler}}
	}
	return r
}

// noClaims is the message of StorageReady of a Machine without claims.
const noClaims = "no disk needs a claim"

// vmReady returns the condition VirtualMachineReady. A quota that is exceeded leaves it as it is: the VirtualMachine is
// right, and there is no room.
func vmReady(s *State, results []chain.Result, o Observation) finding {
	r := s.own(results, HandlerVirtualMachine)
	bad := slices.DeleteFunc(slices.Concat(met(r), reported(o)), func(p Problem) bool { return p.Type == v1alpha1.InsufficientResources })
	switch {
	case len(bad) > 0:
		return isFalse(v1alpha1.ReasonVMFailed, list(bad))
	case s.foreignVM() != "":
		return isFalse(v1alpha1.ReasonVMFailed, s.foreignVM())
	case s.KubeVirt == Absent:
		return isFalse(v1alpha1.ReasonVMFailed, "KubeVirt is not installed")
	case o.Created || r.Done():
		return isTrue(v1alpha1.ReasonVMCreated, "VirtualMachine "+s.Machine.Name)
	}
	return finding{}
}

// storageReady returns the condition StorageReady: the claims are bound.
func storageReady(s *State, results []chain.Result, o Observation) finding {
	storage, imports, data := s.own(results, HandlerStorage), s.own(results, HandlerImport), s.own(results, HandlerCloudInit)
	for _, p := range slices.Concat(s.Problems, met(storage), met(imports), s.importFailures()) {
		if slices.Contains([]string{v1alpha1.StorageClassNotFound, v1alpha1.CDINotInstalled, v1alpha1.ImportFailed}, p.Type) {
			return isFalse(p.Type, p.Message)
		}
	}
	if message := cmp.Or(failure(storage), failure(imports), failure(resultOf(results, HandlerHandOver)), failure(data)); message != "" {
		return isFalse(v1alpha1.ReasonPVCPending, message)
	}
	if message := s.importing(); message != "" {
		return isFalse(v1alpha1.ReasonImporting, message)
	}
	if o.Created && !o.Runs() && (o.Printable == kubevirtv1.VirtualMachineStatusPvcNotFound || o.Printable == kubevirtv1.VirtualMachineStatusDataVolumeError) {
		return isFalse(v1alpha1.ReasonPVCPending, failing[o.Printable])
	}
	names, tried := claims(s, len(storage.BlockedBy) == 0 && len(s.Problems) == 0)
	if !tried {
		return finding{}
	}
	var unbound []string
	for _, name := range names {
		if claim := s.Claims[name]; claim == nil || claim.Status.Phase != corev1.ClaimBound {
			unbound = append(unbound, name)
		}
	}
	switch {
	case len(unbound) > 0:
		return isFalse(v1alpha1.ReasonPVCPending, "not bound yet: "+strings.Join(unbound, ", "))
	case len(names) == 0:
		return isTrue(v1alpha1.ReasonPVCBound, noClaims)
	}
	return isTrue(v1alpha1.ReasonPVCBound, "bound: "+strings.Join(names, ", "))
}

// failure returns why a handler failed, and nothing for a failure that passes at once or is about another object. Missing
// data for the first boot is no failure of storage.
func failure(r chain.Result) string {
	var texts []string
	for _, err := range leaves(r.Err) {
		p, _ := classify(r.Handler, err)
		if passes(err) || p.Type == v1alpha1.CloudInitSourceNotFound {
			continue
		}
		texts = append(texts, cmp.Or(p.Message, textOf(err)))
	}
	return strings.Join(texts, "; ")
}

// claims returns the names of the claims that StorageReady is about, and false if it is not known yet whether there are
// any: those that the Machine needs, or, while that is not known or they were not tried, those that it has.
func claims(s *State, tried bool) (names []string, known bool) {
	if tried {
		for i := range s.Wanted.Disks {
			// A claim of a user need not be among those that are observed. KubeVirt reports one that does not exist.
			if d := &s.Wanted.Disks[i]; d.Claim != "" && (s.Claims[d.Claim] != nil || !s.LeftAlone(d)) {
				names = append(names, d.Claim)
			}
		}
		return names, true
	}
	names = s.labeled()
	return names, len(names) > 0
}

// labeled returns the names of the claims with the Machine's label, in alphabetical order.
func (s *State) labeled() []string {
	var names []string
	for name, claim := range s.Claims {
		if claim.Labels[v1alpha1.LabelMachine] == s.Machine.Name {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// networkReady returns the condition NetworkReady: all networks exist and can be attached to.
func networkReady(s *State, results []chain.Result) finding {
	r := s.own(results, HandlerNetwork)
	bad := slices.DeleteFunc(slices.Clone(s.Problems), func(p Problem) bool {
		return p.Network == "" && p.Type != v1alpha1.NetworkConfigurationNotFound && p.Type != v1alpha1.NetworkAttachmentFailed
	})
	bad = append(bad, met(r)...)
	switch {
	case len(bad) > 0:
		return isFalse(v1alpha1.ReasonNetworkFailed, typed(bad))
	case len(r.BlockedBy) > 0:
		return finding{}
	case r.Err != nil:
		return isFalse(v1alpha1.ReasonNetworkFailed, errorText(r.Err))
	case r.Done():
		return isTrue(v1alpha1.ReasonNetworkConfigured, "")
	}
	return isFalse(v1alpha1.ReasonNetworkFailed, r.Outcome.Message)
}

// typed returns the messages of problems, each once, with their types before them.
func typed(problems []Problem) string {
	var texts []string
	for _, p := range problems {
		if t := p.Type + ": " + p.Message; !slices.Contains(texts, t) {
			texts = append(texts, t)
		}
	}
	return strings.Join(texts, "; ")
}

// list returns the messages of problems, each once.
func list(problems []Problem) string {
	var texts []string
	for _, p := range problems {
		if !slices.Contains(texts, p.Message) {
			texts = append(texts, p.Message)
		}
	}
	return strings.Join(texts, "; ")
}
