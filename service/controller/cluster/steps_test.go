package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// TestHostsThatDoNotAnswerDelayNoOther: many nodes hang, and most of their hosts do not return the console.
func TestHostsThatDoNotAnswerDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Reconciler{Clock: testingclock.NewFakePassiveClock(now.Add(time.Hour)), Console: func(ctx context.Context, _, pod string) (string, error) {
			if pod == "answers" {
				return "login:", nil
			}
			<-ctx.Done()
			return "", ctx.Err()
		}}
		since := metav1.NewTime(now)
		var nodes []v1alpha1.NodeStatus
		for _, pod := range append(slices.Repeat([]string{"silent"}, 40), "answers") {
			nodes = append(nodes, v1alpha1.NodeStatus{Pod: pod, Step: string(nodestep.Booting), Since: &since})
		}
		began := time.Now()
		r.showConsoles(t.Context(), "abc", nodes)
		if took := time.Since(began); took > 10*time.Second || nodes[40].Console != "login:" {
			t.Errorf("it took %s, and the console of the one that answers is %q", took, nodes[40].Console)
		}
	})
}

// TestAHostThatDoesNotAnswerIsAskedEverMoreSeldom: each request to a host that does not respond would keep a worker
// from other clusters.
func TestAHostThatDoesNotAnswerIsAskedEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Duration
		clock := testingclock.NewFakePassiveClock(now)
		r := &Reconciler{Clock: clock, Console: func(ctx context.Context, _, _ string) (string, error) {
			asked = append(asked, clock.Since(now))
			<-ctx.Done()
			return "", ctx.Err()
		}}
		since := metav1.NewTime(now)
		for after := time.Duration(0); after < 20*time.Minute; after += 30 * time.Second {
			clock.SetTime(now.Add(after))
			r.showConsoles(t.Context(), "abc", []v1alpha1.NodeStatus{{Pod: "worker-w1", Step: string(nodestep.Booting), Since: &since}})
		}
		want := []time.Duration{6 * time.Minute, 7*time.Minute + 30*time.Second, 9*time.Minute + 30*time.Second, 12 * time.Minute, 15 * time.Minute, 19 * time.Minute}
		if diff := cmp.Diff(want, asked); diff != "" {
			t.Errorf("the console was asked for at (-want +got):\n%s", diff)
		}
		if got := r.silent.Len(clock.Now()); got != 1 {
			t.Errorf("%d pods are remembered", got)
		}
	})
}

// TestConsoleOfANodeThatHangs: the console is requested once its step takes too long, again while the host does not
// respond, and not after it was read; then an event is emitted, once.
func TestConsoleOfANodeThatHangs(t *testing.T) {
	asked, recorder := []string{}, events.NewFakeRecorder(10)
	answer := func() (string, error) { return "", errors.New("the host does not answer") }
	r := &Reconciler{Events: recorder, Console: func(_ context.Context, namespace, pod string) (string, error) {
		asked = append(asked, namespace+"/"+pod)
		return answer()
	}}
	since := metav1.NewTime(now)
	config := &v1alpha1.KVMConfig{}
	config.Spec.Cluster.ID = "abc"
	config.Status.Nodes = []v1alpha1.NodeStatus{
		{ID: "w1", Role: "worker", Pod: "worker-w1", Step: string(nodestep.Booting), Since: &since},
		{ID: "w2", Role: "worker", Pod: "worker-w2", Step: string(nodestep.Ready), Since: &since},
		{ID: "w3", Role: "worker", Step: string(nodestep.NoPod), Since: &since},
	}
	look := func(after time.Duration) *v1alpha1.KVMConfig {
		r.Clock = testingclock.NewFakePassiveClock(now.Add(after))
		later := config.DeepCopy()
		r.showConsoles(t.Context(), "abc", later.Status.Nodes)
		r.tellSteps(config, later)
		return later
	}
	for _, row := range []struct {
		after   time.Duration
		answers func() (string, error)
		asked   []string
		console string
		told    []string
	}{
		{after: 6*time.Minute - 1, answers: answer},
		{after: 6 * time.Minute, answers: answer, asked: []string{"abc/worker-w1"}},
		{
			after: 7 * time.Minute, answers: func() (string, error) { return "no root\xff\n", nil }, asked: []string{"abc/worker-w1"}, console: "no root?\n",
			told: []string{"Warning NodeHangs worker w1 hangs at Booting; the end of its console:\nno root?\n"},
		},
		{after: time.Hour, answers: answer, console: "no root?\n"},
	} {
		t.Run(fmt.Sprint(row.after), func(t *testing.T) {
			asked, answer = nil, row.answers
			config = look(row.after)
			var told []string
			for len(recorder.Events) > 0 {
				told = append(told, <-recorder.Events)
			}
			if diff := cmp.Diff(row.asked, asked); diff != "" {
				t.Errorf("other consoles were asked for (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.told, told); diff != "" {
				t.Errorf("something else was reported (-want +got):\n%s", diff)
			}
			if got := config.Status.Nodes[0].Console; got != row.console {
				t.Errorf("the status shows %q, want %q", got, row.console)
			}
		})
	}
}

// TestMastersDoNotWaitForEver covers emulated masters whose first two hang permanently, so that no more events come: the
// operator returns in time to start the third one.
func TestMastersDoNotWaitForEver(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(now)
	r := &Reconciler{Clock: clock}
	config := &v1alpha1.KVMConfig{}
	config.Spec.KVM.K8sKVM.Acceleration = v1alpha1.AccelerationTCG
	s := &state.Cluster{Config: config, Founders: []string{"m1", "m2", "m3"}, Workload: state.Workload{Reason: "Refused"}}
	for i, id := range []string{"m1", "m2", "m3"} {
		n := state.Node{ID: id, Role: key.RoleMaster}
		if i < 2 {
			n.Deployment = &appsv1.Deployment{}
			n.Pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(time.Duration(i) * time.Second))}}}
		}
		s.Nodes = append(s.Nodes, n)
	}
	after := r.Again(s, 0)
	if after <= 0 || after > 21*time.Minute {
		t.Fatalf("the operator comes back after %s", after)
	}
	clock.SetTime(now.Add(after))
	for i, n := range s.Nodes {
		s.Nodes[i].Late = !n.LateAt().IsZero() && n.LateAt().Before(clock.Now())
	}
	if why := s.Delayed(s.Nodes[2]); why != "" {
		t.Errorf("it comes back too early: %s", why)
	}
	s.Nodes[2].Deployment = s.Nodes[0].Deployment
	if after := r.Again(s, 0); after != 0 {
		t.Errorf("all have begun, and it comes back after %s", after)
	}
}
