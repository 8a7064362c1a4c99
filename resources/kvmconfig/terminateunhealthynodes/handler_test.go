package terminateunhealthynodes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

var (
	now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	// serverNow is the same time by the clock of the workload cluster.
	serverNow = now.Add(-3 * time.Hour)
)

// deleted are the names of the deleted pods.
type deleted []string

func (d *deleted) Terminate(_ context.Context, _ *v1alpha1.KVMConfig, pod *corev1.Pod, why string) error {
	if !strings.Contains(why, "the Node of worker w") {
		return fmt.Errorf("it is replaced because %s", why)
	}
	*d = append(*d, pod.Name)
	return nil
}

// node returns a node with a pod that was created two days ago and whose gate has its status for that long; "" means
// that it has no gate.
func node(id string, gate corev1.ConditionStatus, ago time.Duration) state.Node {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "worker-" + id, CreationTimestamp: metav1.NewTime(now.Add(-48 * time.Hour)),
	}}
	if gate != "" {
		pod.Status.Conditions = []corev1.PodCondition{{Type: key.ConditionNodeReady, Status: gate, LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
	}
	return state.Node{ID: id, Role: key.RoleWorker, Pods: []corev1.Pod{pod}}
}

// TestOnlyWhatHasNotBeenReadyForLongIsReplaced covers the gates of pods: this handler runs before a pod's gate has
// followed a Node that has just become not Ready.
func TestOnlyWhatHasNotBeenReadyForLongIsReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		gate  corev1.ConditionStatus
		ago   time.Duration
		ready corev1.ConditionStatus // of the Node; none if empty
		since time.Duration          // that the Node says so; as long as its gate if zero
		want  deleted
	}{
		"Ready for long": {corev1.ConditionTrue, 24 * time.Hour, corev1.ConditionTrue, 0, nil},
		"not Ready for a moment, its gate has not followed":      {corev1.ConditionTrue, 24 * time.Hour, corev1.ConditionFalse, 0, nil},
		"unknown for a moment, its gate has not followed":        {corev1.ConditionTrue, 24 * time.Hour, corev1.ConditionUnknown, 0, nil},
		"gone for a moment, its gate has not followed":           {corev1.ConditionTrue, 24 * time.Hour, "", 0, nil},
		"not Ready for less than it may be":                      {corev1.ConditionFalse, 9 * time.Minute, corev1.ConditionFalse, 0, nil},
		"not Ready for as long as it may be":                     {corev1.ConditionFalse, 10 * time.Minute, corev1.ConditionFalse, 0, deleted{"worker-w1"}},
		"gone for as long as it may be":                          {corev1.ConditionFalse, 10 * time.Minute, "", 0, deleted{"worker-w1"}},
		"Ready again for a moment, its gate has not followed":    {corev1.ConditionFalse, time.Hour, corev1.ConditionTrue, 0, nil},
		"Ready while it was not observed, and not for a moment":  {corev1.ConditionFalse, time.Hour, corev1.ConditionFalse, time.Minute + time.Second, nil},
		"not Ready, then unknown, which was seen":                {corev1.ConditionFalse, time.Hour, corev1.ConditionUnknown, time.Minute, deleted{"worker-w1"}},
		"never part of the cluster, and its pod says nothing":    {"", 0, "", 0, nil},
		"just part of the cluster, and its pod has not followed": {"", 0, corev1.ConditionFalse, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state.Machines{
				Config: &v1alpha1.KVMConfig{Spec: v1alpha1.KVMConfigSpec{Remediation: &v1alpha1.Remediation{
					Enabled: true, UnhealthyAfter: &metav1.Duration{Duration: 10 * time.Minute},
				}}},
				Nodes:    []state.Node{node("w0", corev1.ConditionTrue, time.Hour), node("w1", test.gate, test.ago), node("w2", corev1.ConditionTrue, time.Hour)},
				Workload: state.Workload{Connected: true, Watched: time.Minute, Now: serverNow},
			}
			since := test.since
			if since == 0 {
				since = test.ago
			}
			for name, ready := range map[string]corev1.ConditionStatus{"w0": corev1.ConditionTrue, "w1": test.ready, "w2": corev1.ConditionTrue} {
				if ready != "" {
					s.Workload.Nodes = append(s.Workload.Nodes, corev1.Node{
						ObjectMeta: metav1.ObjectMeta{Name: "worker-" + name},
						Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
							Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(serverNow.Add(-since)),
						}}},
					})
				}
			}
			var got deleted
			if _, err := New(&got, testingclock.NewFakePassiveClock(now)).EnsureCreated(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("other pods are deleted (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNodeThatHasNotBegunBlocksNoReplacement: it may wait for the very node that is not Ready.
func TestNodeThatHasNotBegunBlocksNoReplacement(t *testing.T) {
	for name, test := range map[string]struct {
		deployment *appsv1.Deployment
		want       deleted
	}{
		"it waits":                  {nil, deleted{"worker-w1"}},
		"its pod is about to begin": {&appsv1.Deployment{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state.Machines{
				Config:   &v1alpha1.KVMConfig{Spec: v1alpha1.KVMConfigSpec{Remediation: &v1alpha1.Remediation{Enabled: true}}},
				Workload: state.Workload{Connected: true, Watched: time.Hour, Now: serverNow},
				Nodes: []state.Node{
					node("w1", corev1.ConditionFalse, time.Hour), node("w2", corev1.ConditionFalse, time.Minute),
					{ID: "w3", Role: key.RoleWorker, Deployment: test.deployment}, {ID: "w4", Role: key.RoleWorker},
				},
			}
			var got deleted
			if _, err := New(&got, testingclock.NewFakePassiveClock(now)).EnsureCreated(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("other pods are deleted (-want +got):\n%s", diff)
			}
		})
	}
}
