package vitistack

import (
	"context"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// Names of the handlers of a Machine's chain, which say what an error is about.
const (
	// HandlerNetwork looks whether the networks are ready.
	HandlerNetwork = "network"
	// HandlerStorage makes the claims.
	HandlerStorage = "storage"
	// HandlerHandOver ends imports that have filled their claims.
	HandlerHandOver = "handover"
	// HandlerImport makes the DataVolumes that CDI fills claims for.
	HandlerImport = "import"
	// HandlerCloudInit makes the Secret with the data for the first boot.
	HandlerCloudInit = "cloudinit"
	// HandlerVirtualMachine makes the VirtualMachine.
	HandlerVirtualMachine = "virtualmachine"
)

// Problems returns everything that is wrong with the Machine after a pass, in the order of v1alpha1.ErrorTypes: what the
// state says, what the handlers met, and what KubeVirt reports. What a handler says about a type that the state has
// already is a duplicate, and is left out.
func Problems(s *State, results []chain.Result) []Problem {
	var found []Problem
	add := func(p Problem) {
		if !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	deleting := s.Machine.DeletionTimestamp != nil
	if !deleting {
		found = slices.Clone(s.Problems)
	}
	known := slices.Clone(found)
	for _, r := range results {
		for _, p := range met(r) {
			if !has(known, p.Type) {
				add(p)
			}
		}
	}
	if !deleting {
		if s.KubeVirt == Absent && !has(found, v1alpha1.KubeVirtAPIError) {
			add(Problem{Type: v1alpha1.KubeVirtAPIError, Message: "KubeVirt is not installed: the API server has no kind VirtualMachine; install KubeVirt"})
		}
		for _, p := range slices.Concat(reported(observed(s, results)), s.importFailures()) {
			add(p)
		}
	}
	order := v1alpha1.ErrorTypes()
	slices.SortStableFunc(found, func(a, b Problem) int { return slices.Index(order, a.Type) - slices.Index(order, b.Type) })
	return found
}

// has returns whether one of the problems has one of the types.
func has(problems []Problem, types ...string) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return slices.Contains(types, p.Type) })
}

// observed returns what KubeVirt says about the Machine: nothing if the VirtualMachine is another owner's.
func observed(s *State, results []chain.Result) Observation {
	if has(met(resultOf(results, HandlerVirtualMachine)), v1alpha1.NameConflict) {
		return Observation{}
	}
	return s.Observation
}

// resultOf returns the result of a handler, and one of a handler that was not run if there is none.
func resultOf(results []chain.Result, handler string) chain.Result {
	for _, r := range results {
		if r.Handler == handler {
			return r
		}
	}
	return chain.Result{Handler: handler, BlockedBy: []string{handler}}
}

// met returns the problems that a handler met. Errors that the next pass does not meet, and those without a type, are none.
func met(r chain.Result) []Problem {
	var found []Problem
	for _, err := range leaves(r.Err) {
		if p, ok := classify(r.Handler, err); ok {
			found = append(found, p)
		}
	}
	return found
}

// leaves returns the errors that an error joins.
func leaves(err error) []error {
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, leaves(e)...)
	}
	return all
}

// classify returns the problem that an error of a handler is.
func classify(handler string, err error) (Problem, bool) {
	var p *problem.Problem
	switch {
	case apply.IsForeign(err):
		return Problem{Type: v1alpha1.NameConflict, Message: textOf(err)}, true
	case errors.As(err, &p) && slices.Contains(v1alpha1.ErrorTypes(), p.Reason):
		return Problem{Type: p.Reason, Message: p.Message}, true
	case p != nil && p.Reason == v1alpha1.ReasonTerminating:
		return Problem{}, false // the object is made again when it is gone, and what is needed is right
	case p != nil:
		return Problem{Type: refusals[handler], Message: p.Message}, refusals[handler] != ""
	}
	if text, ok := QuotaExceeded(err.Error()); ok && apierrors.IsForbidden(err) {
		return Problem{Type: v1alpha1.InsufficientResources, Message: text + "; raise the quota or ask for less"}, true
	}
	if handler != HandlerVirtualMachine || passes(err) {
		return Problem{}, false
	}
	return Problem{Type: v1alpha1.KubeVirtAPIError, Message: textOf(err)}, true
}

// refusals are the error types of objects that the API server refuses, by handler.
var refusals = map[string]string{
	HandlerNetwork:        v1alpha1.NetworkAttachmentFailed,
	HandlerStorage:        v1alpha1.InvalidSpec,
	HandlerImport:         v1alpha1.ImportFailed,
	HandlerCloudInit:      v1alpha1.InvalidSpec,
	HandlerVirtualMachine: v1alpha1.KubeVirtAPIError,
}

// passes returns whether an error says only that the pass came too late or too early. It changes no condition: a stop or
// a hot-plug beside an apply is no failure.
func passes(err error) bool {
	return apply.IsOutdated(err) || apierrors.IsConflict(err) || errors.Is(err, context.Canceled)
}

// textOf returns a text of an error that is the same with each attempt.
func textOf(err error) string {
	var p *problem.Problem
	var request *apply.RequestError
	switch {
	case errors.As(err, &p):
		return p.Message
	case errors.As(err, &request) && (apierrors.IsForbidden(request.Err) || apierrors.IsBadRequest(request.Err)):
		return request.Verb + " " + request.Object + ": " + apply.Causes(request.Err)
	case request != nil:
		return request.Error()
	}
	return err.Error()
}

// errorText returns the texts of everything that an error joins.
func errorText(err error) string {
	var texts []string
	for _, e := range leaves(err) {
		texts = append(texts, textOf(e))
	}
	return strings.Join(texts, "; ")
}

// QuotaExceeded returns the part of a message that says which quota does not allow an object, and false if it says no
// such thing. What is used at the moment is left out, and with it the names of pods: both change with each attempt.
func QuotaExceeded(message string) (string, bool) {
	const starts, used, limited = "exceeded quota: ", ", used: ", ", limited: "
	_, rest, ok := strings.Cut(message, starts)
	if !ok {
		return "", false
	}
	before, after, hasUsed := strings.Cut(rest, used)
	if _, limits, ok := strings.Cut(after, limited); hasUsed && ok {
		rest = before + limited + limits
	}
	return starts + rest, true
}

// failing are the words of KubeVirt for guests that do not start, and what they mean.
var failing = map[kubevirtv1.VirtualMachinePrintableStatus]string{
	kubevirtv1.VirtualMachineStatusCrashLoopBackOff: "the guest ends repeatedly; look at its console",
	kubevirtv1.VirtualMachineStatusErrImagePull:     "the image of a disk cannot be pulled",
	kubevirtv1.VirtualMachineStatusImagePullBackOff: "the image of a disk cannot be pulled",
	kubevirtv1.VirtualMachineStatusDataVolumeError:  "a DataVolume of the VirtualMachine failed",
	kubevirtv1.VirtualMachineStatusPvcNotFound:      "a claim of the VirtualMachine does not exist",
}

// reported returns the problems that KubeVirt reports. A guest that runs has none of those of starting.
func reported(o Observation) []Problem {
	var found []Problem
	if o.Failure != "" {
		found = append(found, Problem{Type: v1alpha1.KubeVirtAPIError, Message: "VirtualMachine: " + o.Failure})
	}
	if o.Runs() {
		return found
	}
	meaning, fails := failing[o.Printable]
	switch {
	case fails:
		found = append(found, Problem{Type: v1alpha1.VMFailed, Message: "KubeVirt reports " + string(o.Printable) + ": " + meaning})
	case o.Unschedulable != "":
		found = append(found, Problem{Type: v1alpha1.InsufficientResources, Message: o.Unschedulable})
	case o.Printable == kubevirtv1.VirtualMachineStatusUnschedulable:
		found = append(found, Problem{Type: v1alpha1.InsufficientResources, Message: "no node has room for the guest; add one, or ask for less"})
	case o.failed():
		found = append(found, Problem{Type: v1alpha1.VMFailed, Message: "the guest failed, and its run strategy " + string(o.RunStrategy) + " does not start it again"})
	}
	return found
}
