package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
)

// readyPod returns a node pod that is Ready.
func readyPod(name string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ab1cd"},
		Spec:       corev1.PodSpec{NodeName: "host-1"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.244.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// results returns the results of a chain of three handlers.
func results(release, configmap, deployment chain.Result) []chain.Result {
	release.Handler, configmap.Handler, deployment.Handler = "release", "configmap", "deployment"
	release.Area, configmap.Area, deployment.Area = ConditionVersions, ConditionNodes, ConditionNodes
	return []chain.Result{release, configmap, deployment}
}

var (
	isDone      = chain.Result{Outcome: chain.Done()}
	isWaitingOn = chain.Result{Outcome: chain.Wait("NodesNotReady", "worker a: no node pod yet", 0)}
	isStuck     = chain.Result{Err: problem.Newf("ReleaseNotFound", "Release v1 does not exist")}
	isFailing   = chain.Result{Err: errors.New("create Service ab1cd/master: the API server did not answer")}
	isBlocked   = chain.Result{BlockedBy: []string{"release"}}
	isStoring   = chain.Result{Outcome: chain.Store("node indexes were assigned")}
)

// prunes returns the deleter's condition.
func prunes(status metav1.ConditionStatus) []metav1.Condition {
	return []metav1.Condition{{Type: state.ConditionNodesPruned, Status: status, Reason: "Retrying", Message: "node: delete Node w: refused"}}
}

// TestConditionsThatSumUp: Ready, Reconciling and Stalled show the one reason to act on.
func TestConditionsThatSumUp(t *testing.T) {
	for name, test := range map[string]struct {
		results                     []chain.Result
		others                      []metav1.Condition
		deleting                    bool
		ready, reconciling, stalled string
	}{
		"everything is done": {
			results(isDone, isDone, isDone), nil, false,
			"True Ready: every step is done", "", "",
		},
		"one waits": {
			results(isDone, isDone, isWaitingOn), nil, false,
			"False NodesNotReady: deployment: worker a: no node pod yet", "True NodesNotReady: worker a: no node pod yet", "",
		},
		"one fails for the moment": {
			results(isDone, isFailing, isDone), nil, false,
			"False Retrying: configmap: create Service ab1cd/master: the API server did not answer",
			"True Retrying: create Service ab1cd/master: the API server did not answer", "",
		},
		"one is stuck and blocks others": {
			results(isStuck, isBlocked, isBlocked), nil, false,
			"False ReleaseNotFound: release: Release v1 does not exist", "", "True ReleaseNotFound: Release v1 does not exist",
		},
		"a problem goes before what waits, in any order": {
			results(isWaitingOn, isFailing, isStuck), nil, false,
			"False ReleaseNotFound: deployment: Release v1 does not exist", "True NodesNotReady: worker a: no node pod yet", "True ReleaseNotFound: Release v1 does not exist",
		},
		"storing": {
			results(isStoring, isBlocked, isBlocked), nil, false,
			"False Storing: release: node indexes were assigned", "True Storing: node indexes were assigned", "",
		},
		"another controller is not done": {
			results(isDone, isDone, isDone), prunes("False"), false,
			"False Retrying: node: delete Node w: refused", "True Retrying: node: delete Node w: refused", "",
		},
		"another controller is refused": {
			results(isDone, isDone, isDone), []metav1.Condition{{Type: state.ConditionNodesPruned, Status: "False", Reason: "Refused", Message: "node: no"}}, false,
			"False Refused: node: no", "", "True Refused: node: no",
		},
		"another controller only tells something": {
			results(isDone, isDone, isDone), prunes("True"), false,
			"True Ready: every step is done", "", "",
		},
		"own steps go before those of another controller": {
			results(isDone, isDone, isWaitingOn), prunes("False"), false,
			"False NodesNotReady: deployment: worker a: no node pod yet", "True NodesNotReady: worker a: no node pod yet", "",
		},
		"deleting is not Ready even when everything is done": {
			results(isDone, isDone, isDone), nil, true,
			"False Deleting: it is being deleted", "", "",
		},
		"deleting tells what it waits for": {
			results(isBlocked, isDone, isWaitingOn), nil, true,
			"False NodesNotReady: deployment: worker a: no node pod yet", "True NodesNotReady: worker a: no node pod yet", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range reconciler.Summarize(test.results, test.others, test.deleting) {
				got = append(got, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
			}
			want := []string{"Ready=" + test.ready}
			if test.reconciling != "" {
				want = append(want, "Reconciling="+test.reconciling)
			}
			if test.stalled != "" {
				want = append(want, "Stalled="+test.stalled)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("other conditions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAvailableFollowsTheAPIOnly: Available does not depend on nodes or add-ons; without a connection to the workload
// cluster it is absent.
func TestAvailableFollowsTheAPIOnly(t *testing.T) {
	workload := chain.Result{Handler: "workload", Outcome: chain.Done()}
	for name, test := range map[string]struct {
		workload state.Workload
		results  []chain.Result
		want     string
	}{
		"it answers, and a node is not Ready": {state.Workload{Connected: true}, append(results(isDone, isDone, isWaitingOn), workload), "True Available"},
		"it refuses":                          {state.Workload{Reason: "Refused"}, []chain.Result{workload}, "False Refused"},
		"it has not been asked":               {state.Workload{}, []chain.Result{workload}, "Unknown NotAsked"},
		"machines only":                       {state.Workload{}, results(isDone, isDone, isDone), "absent"},
	} {
		t.Run(name, func(t *testing.T) {
			got := "absent"
			if c := available(&state.Cluster{Workload: test.workload}, test.results); c != nil {
				got = string(c.Status) + " " + c.Reason
			}
			if got != test.want {
				t.Errorf("Available is %q, want %q", got, test.want)
			}
		})
	}
}

// TestWhatIsNotConfiguredHasNoCondition: True would mean that snapshots are taken although none are configured.
func TestWhatIsNotConfiguredHasNoCondition(t *testing.T) {
	s := simple().snapshot(t, world{})
	s.Config.Status.Conditions = []metav1.Condition{{Type: "SnapshotsTaken", Status: metav1.ConditionTrue, Reason: "Done"}}
	all := conditions(s, append(results(isDone, isDone, isDone), chain.Result{Handler: "etcdsnapshot", Area: ConditionSnapshots, Outcome: chain.NotConfigured()}), now)
	if have := meta.FindStatusCondition(all, "SnapshotsTaken"); have != nil {
		t.Errorf("the condition is %+v", have)
	}
	if !meta.IsStatusConditionTrue(all, ConditionReady) {
		t.Errorf("what is not configured is not done either: %+v", all)
	}
}

// TestConditionsKeepTheirTimes: conditions keep their times unless their status changes; those that are no longer set
// are removed.
func TestConditionsKeepTheirTimes(t *testing.T) {
	s := simple().snapshot(t, world{})
	s.Config.Generation = 7
	old := func(name string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: name, Status: status, Reason: "Old", LastTransitionTime: earlier}
	}
	s.Config.Status.Conditions = []metav1.Condition{old("VersionsResolved", "True"), old("NodesReady", "True"), old("Gone", "True"), old("Ready", "False")}
	got := map[string]string{}
	for _, c := range conditions(s, results(isDone, isStuck, isDone), now) {
		got[c.Type] = fmt.Sprintf("%s, changed now: %t, generation %d", c.Status, c.LastTransitionTime.Time.Equal(now), c.ObservedGeneration)
	}
	want := map[string]string{
		"Ready": "False, changed now: false, generation 7", "Stalled": "True, changed now: true, generation 7",
		"VersionsResolved": "True, changed now: false, generation 7", "NodesReady": "False, changed now: true, generation 7",
		"InfrastructureReady": "True, changed now: true, generation 7",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other conditions (-want +got):\n%s", diff)
	}
}

// TestNothingNewIsNothingToWrite: a later pass over the same world leads to an equal status.
func TestNothingNewIsNothingToWrite(t *testing.T) {
	for name, outcome := range map[string][]chain.Result{
		"everything is done": results(isDone, isDone, isDone),
		"one waits":          results(isDone, isDone, isWaitingOn),
		"one is stuck":       results(isStuck, isBlocked, isBlocked),
		"one fails":          results(isDone, isFailing, isDone),
	} {
		t.Run(name, func(t *testing.T) {
			sc := full()
			w := sc.running(t)
			sc.config.Status = status(sc.snapshot(t, w), outcome, now)
			sc.config.Status = status(sc.snapshot(t, w), outcome, now.Add(time.Minute))
			again := status(sc.snapshot(t, w), outcome, now.Add(time.Hour))
			if !equality.Semantic.DeepEqual(sc.config.Status, again) {
				t.Errorf("the status changed (-before +after):\n%s", cmp.Diff(sc.config.Status, again))
			}
		})
	}
}

// TestStatusOutlivesTheOperator: until an operator knows what its predecessor knew, the status does not change.
func TestStatusOutlivesTheOperator(t *testing.T) {
	for name, test := range map[string]struct {
		reason, reachable string
		generation        int64
		results           []chain.Result
		want              bool
	}{
		"the first attempt is under way":       {"Connecting", "True", 7, results(isDone, isDone, isWaitingOn), true},
		"it has failed":                        {"Refused", "True", 7, results(isDone, isDone, isWaitingOn), false},
		"it was not reachable before":          {"Connecting", "False", 7, results(isDone, isDone, isWaitingOn), false},
		"the spec is another":                  {"Connecting", "True", 6, results(isDone, isDone, isWaitingOn), false},
		"something has to be stored":           {"Connecting", "True", 7, results(isStoring, isBlocked, isBlocked), false},
		"something fails and is not forgotten": {"Connecting", "True", 7, results(isDone, isFailing, isDone), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := simple().snapshot(t, world{})
			s.Config.Generation, s.Config.Status.ObservedGeneration, s.Workload.Reason = 7, test.generation, test.reason
			s.Config.Status.Conditions = []metav1.Condition{{Type: "Available", Status: metav1.ConditionStatus(test.reachable)}}
			if got := reconnects(s, test.results); got != test.want {
				t.Errorf("reconnects is %t, want %t", got, test.want)
			}
		})
	}
}

// TestFieldsWithoutMeaningAreNamed: ignored fields are reported so that users do not debug a network that does not
// exist.
func TestFieldsWithoutMeaningAreNamed(t *testing.T) {
	told := func(vni int32) string {
		s := simple().snapshot(t, world{})
		s.Config.Spec.KVM.Network.Flannel.VNI, s.Settings.Egress.Open = vni, true
		c := meta.FindStatusCondition(conditions(s, nil, now), ConditionInfrastructure)
		if c == nil {
			return ""
		}
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}
	want := []string{"", "True FlannelNotUsed: network: spec.kvm.network.flannel is ignored: machines take over the addresses of their pods, no bridge is made on hosts"}
	if diff := cmp.Diff(want, []string{told(0), told(26)}); diff != "" {
		t.Errorf("another condition (-want +got):\n%s", diff)
	}
}

// TestWhatGuestsReachIsNamed: it is reported while settings are missing that would restrict it.
func TestWhatGuestsReachIsNamed(t *testing.T) {
	all := []string{"10.244.0.0/16"}
	for name, test := range map[string]struct {
		settings state.Settings
		want     string
	}{
		"nothing is known":    {state.Settings{}, "True NetworksUnknown: networkpolicy: guests reach pods, Services, hosts of the management cluster, because the operator does not know their networks: set service.installation.podcidrs, service.installation.servicecidrs, service.installation.hostcidrs"},
		"hosts are not known": {state.Settings{PodCIDRs: all, ServiceCIDRs: all}, "True NetworksUnknown: networkpolicy: guests reach hosts of the management cluster, because the operator does not know their networks: set service.installation.hostcidrs"},
		"all is known":        {state.Settings{PodCIDRs: all, ServiceCIDRs: all, Egress: state.Egress{HostCIDRs: all}}, ""},
		"it is wanted so":     {state.Settings{Egress: state.Egress{Open: true}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := simple().snapshot(t, world{})
			s.Settings = test.settings
			got := ""
			if c := meta.FindStatusCondition(conditions(s, nil, now), ConditionInfrastructure); c != nil {
				got = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("another condition (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPhasesOfNodes(t *testing.T) {
	running := simple().running(t)
	for name, test := range map[string]struct {
		change func(*scenario, *world)
		want   v1alpha1.NodeStatus
	}{
		"nothing exists": {
			func(_ *scenario, w *world) { *w = world{} },
			v1alpha1.NodeStatus{ID: "w0aaa", Role: "worker", Phase: "Pending", Message: "no node pod yet"},
		},
		"no pod": {
			func(_ *scenario, w *world) { w.Pods = nil },
			v1alpha1.NodeStatus{ID: "w0aaa", Role: "worker", Phase: "Pending", Message: "no node pod yet"},
		},
		"the pod is pending": {
			func(_ *scenario, w *world) {
				notReady(&w.Pods[1])
				w.Pods[1].Status.Phase, w.Pods[1].Status.PodIP, w.Pods[1].Spec.NodeName = corev1.PodPending, "", ""
			},
			v1alpha1.NodeStatus{ID: "w0aaa", Role: "worker", Pod: "P", Phase: "Pending", Message: "node pod P is not Ready"},
		},
		"the machine starts": {
			func(_ *scenario, w *world) { notReady(&w.Pods[1]) },
			v1alpha1.NodeStatus{ID: "w0aaa", Role: "worker", Pod: "P", IP: "10.244.0.2", Host: "H", Phase: "Starting", Message: "node pod P is not Ready"},
		},
		"it serves": {
			func(*scenario, *world) {},
			v1alpha1.NodeStatus{ID: "w0aaa", Role: "worker", Pod: "P", IP: "10.244.0.2", Host: "H", Phase: "Ready"},
		},
		"it goes": {
			func(_ *scenario, w *world) { terminating(&w.Pods[1]) },
			v1alpha1.NodeStatus{ID: "w0aaa", Role: "worker", Pod: "P", IP: "10.244.0.2", Host: "H", Phase: "Terminating", Message: "node pod P is terminating"},
		},
		"it is outdated": {
			func(s *scenario, _ *world) { s.config.Spec.KVM.Workers[0].CPUs = 4 },
			v1alpha1.NodeStatus{ID: "w0aaa", Role: "worker", Pod: "P", IP: "10.244.0.2", Host: "H", Phase: "Outdated"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, w := simple(), world{Objects: state.Objects{Pods: append([]corev1.Pod(nil), running.Pods...), Deployments: running.Deployments}}
			test.change(&s, &w)
			got := nodeStatuses(s.snapshot(t, w), now)[1]
			want := fillIn(test.want, "worker-w0aaa-574dd54b85-x2x2x", "host-worker-w0aaa")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("another status (-want +got):\n%s", diff)
			}
		})
	}
}

// fillIn replaces the short names P and H.
func fillIn(st v1alpha1.NodeStatus, pod, host string) v1alpha1.NodeStatus {
	if st.Pod == "P" {
		st.Pod = pod
	}
	if st.Host == "H" {
		st.Host = host
	}
	for _, form := range []string{"node pod %s is not Ready", "node pod %s is terminating"} {
		if st.Message == fmt.Sprintf(form, "P") {
			st.Message = fmt.Sprintf(form, pod)
		}
	}
	return st
}
