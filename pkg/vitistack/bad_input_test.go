package vitistack_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// shown is what a user sees of a status: phase, reason of Ready, and the other conditions as "Status/Reason", with "-"
// where they are absent.
type shown struct{ phase, ready, vm, storage, network string }

func show(status v1alpha1.MachineStatus) shown {
	condition := func(kind string) string {
		c := meta.FindStatusCondition(status.Conditions, kind)
		if c == nil {
			return "-"
		}
		return string(c.Status) + "/" + c.Reason
	}
	return shown{
		status.Phase, condition(v1alpha1.ConditionReady), condition(v1alpha1.ConditionVirtualMachineReady),
		condition(v1alpha1.ConditionStorageReady), condition(v1alpha1.ConditionNetworkReady),
	}
}

// missing are the problems of a state, in the order of the API.
func missing(types ...string) []vitistack.Problem {
	var all []vitistack.Problem
	for _, t := range types {
		all = append(all, vitistack.Problem{Type: t, Message: t + " of the spec"})
	}
	return all
}

// blocked are results of a pass in which the first handler says what is wrong with the spec.
func blocked(errorType string) []chain.Result {
	return results(map[string]error{vitistack.HandlerNetwork: problem.Newf(errorType, "%s of the spec", errorType)})
}

func vmFails(err error) []chain.Result {
	return results(map[string]error{vitistack.HandlerVirtualMachine: request("create", "VirtualMachine.kubevirt.io ci/agent", err)})
}

func fails(handler string, err error) []chain.Result {
	return results(map[string]error{handler: err})
}

var runningGuest = vitistack.Observation{
	Created: true, Printable: kubevirtv1.VirtualMachineStatusRunning, RunStrategy: kubevirtv1.RunStrategyAlways,
	Instance: true, Phase: kubevirtv1.Running, Ready: true, Node: "node-1",
}

const (
	created    = "True/VMCreated"
	vmFailed   = "False/VMFailed"
	bound      = "True/PVCBound"
	pvcPending = "False/PVCPending"
	configured = "True/NetworkConfigured"
	netFailed  = "False/NetworkFailed"
)

// terminating is what the engine says of an object that is being deleted.
var terminating = problem.Newf("Terminating", "PersistentVolumeClaim ci/agent-root is being deleted; the operator creates it again when it is gone")

// badInputs are the states of a Machine for which something is wrong. There is no claim yet.
var badInputs = map[string]struct {
	problems []vitistack.Problem
	kubeVirt vitistack.KubeVirt
	results  []chain.Result
	observed vitistack.Observation
	want     shown
	// message is part of the message of Ready.
	message string
}{
	"an unknown template": {
		problems: missing(v1alpha1.TemplateNotFound), results: blocked(v1alpha1.TemplateNotFound),
		want: shown{"Failed", "False/TemplateNotFound", "-", "-", "-"},
	},
	"an unknown template, and no handler was run": {
		problems: missing(v1alpha1.TemplateNotFound),
		want:     shown{"Failed", "False/TemplateNotFound", "-", "-", "-"},
	},
	"a network that does not exist": {
		problems: []vitistack.Problem{{Type: v1alpha1.NetworkConfigurationNotFound, Message: "NetworkConfiguration ci/front not found", Network: "front"}},
		results:  blocked(v1alpha1.NetworkConfigurationNotFound),
		want:     shown{"Failed", "False/NetworkConfigurationNotFound", "-", "-", netFailed},
		message:  "NetworkConfiguration ci/front not found",
	},
	"a StorageClass that does not exist": {
		problems: missing(v1alpha1.StorageClassNotFound), results: fails(vitistack.HandlerStorage, problem.Newf(v1alpha1.StorageClassNotFound, "again")),
		want: shown{"Failed", "False/StorageClassNotFound", "-", "False/StorageClassNotFound", configured},
	},
	"several of these at once": {
		problems: missing(v1alpha1.TemplateNotFound, v1alpha1.NetworkConfigurationNotFound, v1alpha1.StorageClassNotFound),
		results:  blocked(v1alpha1.TemplateNotFound),
		want:     shown{"Failed", "False/TemplateNotFound", "-", "False/StorageClassNotFound", netFailed},
		message:  "TemplateNotFound, NetworkConfigurationNotFound, StorageClassNotFound: TemplateNotFound of the spec; NetworkConfigurationNotFound of the spec; Stor",
	},
	"a guest for which no node has room": {
		results:  results(nil),
		observed: vitistack.Observation{Created: true, Printable: kubevirtv1.VirtualMachineStatusUnschedulable, RunStrategy: kubevirtv1.RunStrategyAlways},
		want:     shown{"Creating", "False/InsufficientResources", created, pvcPending, configured},
	},
	"a claim that is being deleted": {
		results: fails(vitistack.HandlerStorage, terminating), message: "is being deleted",
		want: shown{"Pending", "False/Pending", "-", pvcPending, configured},
	},
	"a claim that is being deleted under a guest": {
		results: fails(vitistack.HandlerStorage, terminating), observed: runningGuest, message: "is being deleted",
		want: shown{"Running", pvcPending, created, pvcPending, configured},
	},
	"a claim over the quota": {
		results: fails(vitistack.HandlerStorage, request("create", "PersistentVolumeClaim ci/agent-root", errQuota)),
		want:    shown{"Creating", "False/InsufficientResources", "-", pvcPending, configured},
		message: "exceeded quota: disks, requested: requests.storage=40Gi, limited: requests.storage=100Gi; raise",
	},
	"a VirtualMachine over the quota": {
		results: vmFails(errQuota),
		want:    shown{"Creating", "False/InsufficientResources", "-", pvcPending, configured},
	},
	"no KubeVirt": {
		kubeVirt: vitistack.Absent, results: fails(vitistack.HandlerVirtualMachine, problem.Newf(v1alpha1.KubeVirtAPIError, "no KubeVirt")),
		want: shown{"Creating", "False/KubeVirtApiError", vmFailed, pvcPending, configured},
	},
	"no KubeVirt, and no handler says so": {
		kubeVirt: vitistack.Absent,
		want:     shown{"Creating", "False/KubeVirtApiError", vmFailed, "-", "-"}, message: "install KubeVirt",
	},
	"a webhook that denies": {
		results: vmFails(errDenied),
		want:    shown{"Creating", "False/KubeVirtApiError", vmFailed, pvcPending, configured},
		message: "denied the request: spec.template.spec.domain.machine.type: is not supported: pc-i440fx (allowed values: [q35* pc-q35*]); spec.template.spec.hostname: too long",
	},
	"a webhook that is down": {
		results: vmFails(apierrors.NewInternalError(errors.New("failed calling webhook at 10.1.2.3"))),
		want:    shown{"Creating", "False/KubeVirtApiError", vmFailed, pvcPending, configured},
		message: "create VirtualMachine.kubevirt.io ci/agent: the API server answers InternalError",
	},
	"an API server that does not answer": {
		results: vmFails(context.DeadlineExceeded),
		want:    shown{"Creating", "False/KubeVirtApiError", vmFailed, pvcPending, configured},
	},
	"credentials that are not valid": {
		results: vmFails(apierrors.NewUnauthorized("no")),
		want:    shown{"Creating", "False/KubeVirtApiError", vmFailed, pvcPending, configured},
	},
	"a VirtualMachine that KubeVirt cannot sync": {
		results:  results(nil),
		observed: vitistack.Observation{Created: true, RunStrategy: kubevirtv1.RunStrategyAlways, Failure: "FailedCreate"},
		want:     shown{"Creating", "False/KubeVirtApiError", vmFailed, pvcPending, configured},
	},
	"a Secret for the first boot that does not exist": {
		problems: missing(v1alpha1.CloudInitSourceNotFound), results: blocked(v1alpha1.CloudInitSourceNotFound),
		want: shown{"Pending", "False/CloudInitSourceNotFound", "-", "-", "-"},
	},
	"neither template, class nor memory": {
		problems: missing(v1alpha1.InvalidSpec), results: blocked(v1alpha1.InvalidSpec),
		want: shown{"Failed", "False/InvalidSpec", "-", "-", "-"},
	},
	"a class that is disabled": {
		problems: missing(v1alpha1.MachineClassDisabled), results: blocked(v1alpha1.MachineClassDisabled),
		want: shown{"Failed", "False/MachineClassDisabled", "-", "-", "-"},
	},
	"a VirtualMachine of another owner": {
		results:  fails(vitistack.HandlerVirtualMachine, problem.Newf("NotOwned", "VirtualMachine ci/agent exists")),
		observed: runningGuest,
		want:     shown{"Failed", "False/NameConflict", vmFailed, pvcPending, configured},
	},
	"a claim of another owner": {
		results: fails(vitistack.HandlerStorage, problem.Newf("OwnedByOther", "PersistentVolumeClaim ci/agent-root belongs to another")),
		want:    shown{"Failed", "False/NameConflict", "-", pvcPending, configured},
	},
	"a Secret of another owner": {
		results: fails(vitistack.HandlerCloudInit, problem.Newf("NotOwned", "Secret ci/agent-cloudinit exists")),
		want:    shown{"Failed", "False/NameConflict", "-", pvcPending, configured},
	},
	"a NetworkAttachmentDefinition of another owner": {
		results: fails(vitistack.HandlerNetwork, problem.Newf(v1alpha1.NameConflict, "NetworkAttachmentDefinition ci/front exists")),
		want:    shown{"Failed", "False/NameConflict", "-", "-", netFailed},
	},
	"no Multus": {
		results: fails(vitistack.HandlerNetwork, problem.Newf(v1alpha1.NetworkAttachmentFailed, "Multus is not installed")),
		want:    shown{"Creating", "False/NetworkAttachmentFailed", "-", "-", netFailed}, message: "Multus is not installed",
	},
	"a network that is not ready yet": {
		results: waiting(),
		want:    shown{"Pending", "False/Pending", "-", "-", netFailed}, message: "NetworkConfiguration ci/front has no",
	},
	"a claim that the API server does not make": {
		results: fails(vitistack.HandlerStorage, request("create", "PersistentVolumeClaim ci/agent-root", apierrors.NewInternalError(errNothing))),
		want:    shown{"Pending", "False/Pending", "-", pvcPending, configured}, message: "create PersistentVolumeClaim ci/agent-root: the API server answers InternalError",
	},
	"a guest that ends repeatedly": {
		results:  results(nil),
		observed: vitistack.Observation{Created: true, Printable: kubevirtv1.VirtualMachineStatusCrashLoopBackOff, RunStrategy: kubevirtv1.RunStrategyAlways},
		want:     shown{"Failed", "False/VMFailed", vmFailed, pvcPending, configured},
	},
	"an edit that names an unknown template, while the guest runs": {
		problems: missing(v1alpha1.TemplateNotFound), results: blocked(v1alpha1.TemplateNotFound), observed: runningGuest,
		want: shown{"Running", "False/TemplateNotFound", created, "-", "-"},
	},
	"an edit that KubeVirt denies, while the guest runs": {
		results: vmFails(errDenied), observed: runningGuest,
		want: shown{"Running", "False/KubeVirtApiError", vmFailed, pvcPending, configured},
	},
	"an edit that meets a stop": {
		results: vmFails(apierrors.NewConflict(vms, "agent", errNothing)), observed: runningGuest,
		want: shown{"Running", pvcPending, created, pvcPending, configured}, message: "not bound yet: agent-root",
	},
}

// TestBadInput: each wrong value ends in one phase and one reason, which names the object.
func TestBadInput(t *testing.T) {
	for name, test := range badInputs {
		t.Run(name, func(t *testing.T) {
			s := state("", "")
			s.Claims, s.Problems, s.Observation = nil, test.problems, test.observed
			if test.kubeVirt != vitistack.Unknown {
				s.KubeVirt = test.kubeVirt
			}
			status := vitistack.Status(s, test.results)
			if diff := cmp.Diff(test.want, show(status), cmp.AllowUnexported(shown{})); diff != "" {
				t.Errorf("the status is another one (-want +got):\n%s", diff)
			}
			if ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); !strings.Contains(ready.Message, test.message) {
				t.Errorf("Ready says %q", ready.Message)
			}
			recovers(t, s, status)
		})
	}
}

// recovers checks that everything of an error is gone once its cause is.
func recovers(t *testing.T, s *vitistack.State, status v1alpha1.MachineStatus) {
	t.Helper()
	repaired := state("", "")
	repaired.Machine.Status, repaired.Observation = status, runningGuest
	got := vitistack.Status(repaired, results(nil))
	if diff := cmp.Diff(shown{"Running", "True/Running", created, bound, configured}, show(got), cmp.AllowUnexported(shown{})); diff != "" {
		t.Errorf("it does not recover (-want +got):\n%s", diff)
	}
	if got.FailureReason != "" || got.FailureMessage != "" {
		t.Errorf("failureReason stays %q: %q", got.FailureReason, got.FailureMessage)
	}
	entered := vitistack.Errors(s.Machine.Status, status)
	if !slices.Equal(entered, vitistack.Types(status)) || len(vitistack.Errors(status, status)) > 0 || len(vitistack.Errors(status, got)) > 0 {
		t.Errorf("of %v are counted %v", vitistack.Types(status), entered)
	}
}

// TestAMessageHasAtMost500Characters, not bytes, and ends in dots where it was cut.
func TestAMessageHasAtMost500Characters(t *testing.T) {
	for length, want := range map[int]int{499: 499, 500: 500, 501: 500, 40000: 500} {
		s := state("", "")
		s.Problems = []vitistack.Problem{{Type: v1alpha1.InvalidSpec, Message: strings.Repeat("é", length)}}
		status := vitistack.Status(s, nil)
		if n := utf8.RuneCountInString(status.FailureMessage); n != want || strings.HasSuffix(status.FailureMessage, "...") != (length > 500) {
			t.Errorf("of %d characters %d are left: %q", length, n, status.FailureMessage)
		}
		if ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); len(ready.Message) > 32768 {
			t.Errorf("the message of Ready has %d bytes", len(ready.Message))
		}
	}
}
