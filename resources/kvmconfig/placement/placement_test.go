package placement

import (
	stdcmp "cmp"
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// placed records the calls of a Placer as pod@host.
type placed []string

func (p *placed) PlacePod(_ context.Context, pod *corev1.Pod, _, host string) error {
	*p = append(*p, pod.Name+"@"+host)
	return nil
}

func pod(name, host string, isGated, terminating bool) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: host}}
	if isGated {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: key.GateEtcdHost}}
	}
	if terminating {
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	return p
}

func TestMasterStaysWhereItsDataIs(t *testing.T) {
	tests := map[string]struct {
		known      string
		pods       []corev1.Pod // the newest first
		wantHost   string
		wantPlaced placed
		wantState  chain.State
	}{
		"no pod yet": {wantState: chain.StateDone},
		"the first pod goes anywhere": {
			pods: []corev1.Pod{pod("a", "", true, false)}, wantPlaced: placed{"a@"},
		},
		"where the first pod went is stored before anything else": {
			pods: []corev1.Pod{pod("a", "host-1", false, false)}, wantHost: "host-1", wantState: chain.StateStore,
		},
		"a successor waits until that is stored": {
			pods: []corev1.Pod{pod("b", "", true, false), pod("a", "host-1", false, true)}, wantHost: "host-1", wantState: chain.StateStore,
		},
		"a successor goes where the data is": {
			known: "host-1", pods: []corev1.Pod{pod("b", "", true, false), pod("a", "host-1", false, true)},
			wantHost: "host-1", wantPlaced: placed{"b@host-1"},
		},
		"also when its predecessor has vanished": {
			known: "host-1", pods: []corev1.Pod{pod("b", "", true, false)}, wantHost: "host-1", wantPlaced: placed{"b@host-1"},
		},
		"a pod elsewhere changes nothing about where the data is": {
			known: "host-1", pods: []corev1.Pod{pod("b", "host-2", false, false)}, wantHost: "host-1",
		},
		"of two unknown hosts the older pod's has the data": {
			pods: []corev1.Pod{pod("b", "host-2", false, false), pod("a", "host-1", false, true)}, wantHost: "host-1", wantState: chain.StateStore,
		},
		"a pod that is on its way out is not placed": {
			known: "host-1", pods: []corev1.Pod{pod("a", "", true, true)}, wantHost: "host-1",
		},
		"a placed pod is left alone": {
			known: "host-1", pods: []corev1.Pod{pod("a", "host-1", false, false)}, wantHost: "host-1",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := fixture.MakeCluster("abc12").Obj()
			s := &state.Cluster{Config: config, Nodes: state.NewNodes(config.Spec)}
			s.Nodes[0].EtcdHost, s.Nodes[0].Pods = test.known, test.pods
			check(t, s, &s.Nodes[0], test.wantPlaced, test.wantHost, test.wantState)
		})
		t.Run(name+", and it was removed from the spec", func(t *testing.T) {
			retiring := []state.Node{{ID: "m7", Role: key.RoleMaster, EtcdHost: test.known, Pods: test.pods}}
			s := &state.Cluster{Config: fixture.MakeCluster("abc12").Obj(), Retiring: retiring}
			check(t, s, &s.Retiring[0], test.wantPlaced, test.wantHost, test.wantState)
		})
	}
}

// TestMasterWhoseDataIsOnAHostIsNotPlaced covers a status that has lost the host.
func TestMasterWhoseDataIsOnAHostIsNotPlaced(t *testing.T) {
	ran := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key.AnnotationEtcdMember: "1"}}}
	for name, test := range map[string]struct {
		known, bound string
		want         placed
		wantState    chain.State
	}{
		"its host is unknown":   {wantState: chain.StateWaiting},
		"the status knows":      {known: "host-1", want: placed{"b@host-1"}},
		"an older pod is there": {bound: "host-1", wantState: chain.StateStore},
	} {
		t.Run(name, func(t *testing.T) {
			pods := []corev1.Pod{pod("b", "", true, false)}
			if test.bound != "" {
				pods = append(pods, pod("a", test.bound, false, true))
			}
			config := fixture.MakeCluster("abc12").Obj()
			s := &state.Cluster{Config: config, Nodes: state.NewNodes(config.Spec)}
			s.Nodes[0].EtcdHost, s.Nodes[0].Pods, s.Nodes[0].Deployment = test.known, pods, ran
			check(t, s, &s.Nodes[0], test.want, test.known+test.bound, test.wantState)
		})
	}
}

func check(t *testing.T, s *state.Cluster, n *state.Node, wantPlaced placed, wantHost string, wantState chain.State) {
	t.Helper()
	var got placed
	s.OwnsNamespace = true
	s.LookAtHosts()
	outcome, err := New(&got).EnsureCreated(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantPlaced, got); diff != "" {
		t.Errorf("placed (-want +got):\n%s", diff)
	}
	if host := stdcmp.Or(n.EtcdHost, n.FoundHost); host != wantHost || outcome.State != wantState {
		t.Errorf("host %q and state %d, want %q and %d", host, outcome.State, wantHost, wantState)
	}
}

func TestOnlyMastersWithDataOnHostsAreGated(t *testing.T) {
	config := fixture.MakeCluster("abc12").EtcdOnVolume("15Gi").Obj()
	s := &state.Cluster{Config: config, Nodes: state.NewNodes(config.Spec)}
	s.Nodes[0].Pods = []corev1.Pod{pod("a", "", true, false)}
	var got placed
	if _, err := New(&got).EnsureCreated(t.Context(), s); err != nil || len(got) > 0 {
		t.Errorf("placed %v, err %v, want nothing", got, err)
	}
}
