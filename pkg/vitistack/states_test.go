package vitistack_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// state is the state of a Machine with a bound claim and an interface that was in a phase. problem is an error type that
// the state has; empty for none.
func state(last, problem string) *vitistack.State {
	s := &vitistack.State{
		Observed: vitistack.Observed{
			Machine: &v1alpha1.Machine{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "agent", UID: "1", Generation: 3, ResourceVersion: "7"},
				Status:     v1alpha1.MachineStatus{Phase: last},
			},
			KubeVirt: vitistack.Installed,
			Claims: map[string]*corev1.PersistentVolumeClaim{"agent-root": {
				ObjectMeta: metav1.ObjectMeta{Name: "agent-root", Labels: map[string]string{v1alpha1.LabelMachine: "agent"}},
				Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
			}},
			Now: time.Date(2026, 9, 1, 10, 0, 0, 500, time.UTC),
		},
		Wanted: vitistack.Wanted{
			Disks:      []vitistack.Disk{{Name: "root", Claim: "agent-root", Root: true}},
			Interfaces: []vitistack.Interface{{Name: "default", MAC: "02:12:00:00:00:01"}},
		},
	}
	if problem != "" {
		s.Problems = []vitistack.Problem{{Type: problem, Message: problem + " of the spec"}}
	}
	return s
}

// results are those of a pass in which all handlers are done but those with an error. Those after an error are blocked.
func results(errs map[string]error) []chain.Result {
	var all []chain.Result
	blockedBy := []string(nil)
	for _, name := range []string{vitistack.HandlerNetwork, vitistack.HandlerStorage, vitistack.HandlerImport, vitistack.HandlerCloudInit, vitistack.HandlerVirtualMachine} {
		r := chain.Result{Handler: name, BlockedBy: blockedBy, Err: errs[name]}
		if blockedBy == nil {
			r.Outcome = chain.Done()
		}
		if r.Err != nil {
			blockedBy = []string{name}
		}
		all = append(all, r)
	}
	return all
}

// waiting are results of a pass in which the network waits and everything else is blocked.
func waiting() []chain.Result {
	all := results(map[string]error{vitistack.HandlerNetwork: errNothing})
	all[0].Err, all[0].Outcome = nil, chain.Wait("Waiting", "NetworkConfiguration ci/front has no NetworkAttachmentDefinition yet", 0)
	return all
}

var (
	errNothing = errors.New("nothing")
	vms        = schema.GroupResource{Group: "kubevirt.io", Resource: "virtualmachines"}
	claims     = schema.GroupResource{Resource: "persistentvolumeclaims"}
	errQuota   = apierrors.NewForbidden(claims, "agent-root", errors.New("exceeded quota: disks, requested: requests.storage=40Gi, used: requests.storage=90Gi, limited: requests.storage=100Gi"))
	// errDenied is what KubeVirt's webhook answers, with one field that the message does not name.
	errDenied = &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: `admission webhook "virtualmachine-validator.kubevirt.io" denied the request: is not supported: pc-i440fx (allowed values: [q35* pc-q35*]), too long`,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
			{Field: "spec.template.spec.domain.machine.type", Message: "is not supported: pc-i440fx (allowed values: [q35* pc-q35*])"},
			{Field: "spec.template.spec.hostname", Message: "too long"},
		}},
	}}
)

// request is the error of a request for an object.
func request(verb, object string, err error) error {
	return fmt.Errorf("applying: %w", &apply.RequestError{Verb: verb, Object: object, Err: err})
}

// faults are errors of handlers.
func faults() []map[string]error {
	vm := func(err error) map[string]error { return map[string]error{vitistack.HandlerVirtualMachine: err} }
	storage := func(err error) map[string]error { return map[string]error{vitistack.HandlerStorage: err} }
	return []map[string]error{
		vm(request("create", "VirtualMachine.kubevirt.io ci/agent", errDenied)),
		vm(request("create", "VirtualMachine.kubevirt.io ci/agent", apierrors.NewInternalError(errNothing))),
		vm(request("create", "VirtualMachine.kubevirt.io ci/agent", context.DeadlineExceeded)),
		vm(request("patch", "VirtualMachine.kubevirt.io ci/agent", apierrors.NewConflict(vms, "agent", errNothing))),
		vm(request("create", "VirtualMachine.kubevirt.io ci/agent", errQuota)),
		vm(problem.Newf("NotOwned", "VirtualMachine.kubevirt.io ci/agent exists and is not managed by this operator")),
		vm(problem.Newf("Refused", "the API server refuses to patch VirtualMachine.kubevirt.io ci/agent")),
		storage(request("create", "PersistentVolumeClaim ci/agent-root", errQuota)),
		storage(request("create", "PersistentVolumeClaim ci/agent-root", apierrors.NewInternalError(errNothing))),
		storage(errors.Join(problem.Newf("OwnedByOther", "PersistentVolumeClaim ci/agent-root belongs to another"), context.DeadlineExceeded)),
		storage(problem.Newf(v1alpha1.StorageClassNotFound, "StorageClass fast does not exist")),
		{vitistack.HandlerNetwork: problem.Newf(v1alpha1.NetworkAttachmentFailed, "Multus is not installed")},
		{vitistack.HandlerImport: problem.Newf(v1alpha1.CDINotInstalled, "CDI is not installed")},
		{vitistack.HandlerImport: problem.Newf("NotOwned", "DataVolume ci/agent-root exists and is not managed by this operator")},
		{vitistack.HandlerCloudInit: problem.Newf("NotOwned", "Secret ci/agent-cloudinit exists and is not managed by this operator")},
		{vitistack.HandlerCloudInit: problem.Newf(v1alpha1.CloudInitSourceNotFound, "Secret ci/data does not exist")},
	}
}

// eachFault calls the function with each error type of the state, or none, and each kind of results.
func eachFault(call func(problem string, results []chain.Result)) {
	for _, p := range append(v1alpha1.ErrorTypes(), "") {
		call(p, nil)
		call(p, results(nil))
		call(p, waiting())
		for _, errs := range faults() {
			call(p, results(errs))
		}
		// The first handler says again what is wrong with the spec.
		call(p, results(map[string]error{vitistack.HandlerNetwork: problem.Newf(p, "%s of the spec", p)}))
	}
}

// withFaults are some of eachFault that a Machine with a VirtualMachine meets. Run strategies make no difference to
// them, so two of these are enough.
func withFaults(strategy kubevirtv1.VirtualMachineRunStrategy) iter.Seq2[string, []chain.Result] {
	all := strategy == kubevirtv1.RunStrategyAlways || strategy == kubevirtv1.RunStrategyHalted
	again := map[string]error{vitistack.HandlerNetwork: problem.Newf(v1alpha1.TemplateNotFound, "again")}
	return func(yield func(string, []chain.Result) bool) {
		_ = yield("", results(nil)) && all && yield(v1alpha1.TemplateNotFound, results(again)) &&
			yield("", results(faults()[0])) && yield("", results(faults()[8]))
	}
}
