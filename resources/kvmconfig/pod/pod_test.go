package pod_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/pod"
)

var errChanged = errors.New("the pod has changed")

// journal is a drainer that records what it is asked for. Each call whose line is among fails fails.
type journal struct {
	lines, fails []string
}

func (j *journal) note(format string, arguments ...any) error {
	line := fmt.Sprintf(format, arguments...)
	j.lines = append(j.lines, line)
	for _, f := range j.fails {
		if f == line {
			return errChanged
		}
	}
	return nil
}

func (j *journal) Finish(context.Context, *drain.State) error { return j.note("finish") }

func (j *journal) Report(_ context.Context, _ *drain.State, c corev1.PodCondition) error {
	return j.note("report %s %s", c.Status, c.Reason)
}

func (j *journal) ReportAsSeen(_ context.Context, _ *drain.State, c corev1.PodCondition) error {
	return j.note("as seen %s %s", c.Status, c.Reason)
}

func (j *journal) Empty(context.Context, *drain.State, drain.Decision) (string, error) {
	return "; default/web: a budget", j.note("empty")
}

func (j *journal) Release(context.Context, *drain.State) error { return j.note("release") }

// TestStepsOfADrain: what may be lost in a crash is recorded before it is done, and nothing is done if that fails.
func TestStepsOfADrain(t *testing.T) {
	cordoned := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}
	worker := drain.Machine{Watched: true, Connected: true, Node: cordoned}
	full := worker
	full.Pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet"}}}}}
	master := worker
	master.Master, master.Masters, master.Healthy = true, 3, 2
	needed := master
	needed.Healthy, needed.Votes = 1, true
	sudden := master
	sudden.HostShutsDown = true
	for name, test := range map[string]struct {
		machine drain.Machine
		said    *corev1.PodCondition
		fails   []string
		want    []string
		err     error
	}{
		"a worker with pods":                       {full, nil, nil, []string{"empty", "report False Draining"}, nil},
		"an empty worker":                          {worker, nil, nil, []string{"release", "report True Drained"}, nil},
		"whose runner does not answer":             {worker, nil, []string{"release"}, []string{"release", "report False ReleaseFailed"}, errChanged},
		"a machine that is off":                    {drain.Machine{Stopped: true}, nil, nil, []string{"finish"}, nil},
		"a master":                                 {master, nil, nil, []string{"as seen False ReleaseAnnounced"}, nil},
		"a master that is announced":               {master, held(drain.ReleaseAnnounced), nil, []string{"as seen False Releasing", "release", "report True Drained"}, nil},
		"an announcement that was withdrawn":       {master, held(drain.ReleaseAnnounced), []string{"as seen False Releasing"}, []string{"as seen False Releasing"}, errChanged},
		"a master whose release is confirmed":      {master, held(drain.Releasing), nil, []string{"release", "report True Drained"}, nil},
		"a master that is needed":                  {needed, held(drain.ReleaseAnnounced), nil, []string{"as seen False QuorumAtRisk"}, nil},
		"one that is needed, and confirmed":        {needed, held(drain.Releasing), nil, []string{"as seen False Releasing"}, nil},
		"a master whose host shuts down":           {sudden, nil, nil, []string{"report False Releasing", "release", "report True HostShutsDown"}, nil},
		"which cannot be recorded, so is not done": {sudden, nil, []string{"report False Releasing"}, []string{"report False Releasing"}, errChanged},
	} {
		t.Run(name, func(t *testing.T) {
			s := &drain.State{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Now()}}}, Machine: test.machine}
			if test.said != nil {
				s.Pod.Status.Conditions = []corev1.PodCondition{*test.said}
			}
			j := &journal{fails: test.fails}
			_, err := pod.New(j).EnsureCreated(t.Context(), s)
			if diff := cmp.Diff(test.want, j.lines); diff != "" || !errors.Is(err, test.err) {
				t.Errorf("it ends with %v, want %v; other steps (-want +got):\n%s", err, test.err, diff)
			}
		})
	}
}

func held(reason drain.Reason) *corev1.PodCondition {
	c := drain.Held(reason, "")
	return &c
}

// TestPodsOfNoClusterAreLeftAlone: nothing is decided while the namespace names no owner.
func TestPodsOfNoClusterAreLeftAlone(t *testing.T) {
	j := &journal{}
	outcome, err := pod.New(j).EnsureCreated(t.Context(), &drain.State{Unowned: true, Pod: &corev1.Pod{}})
	if err != nil || len(j.lines) > 0 || outcome.Reason != "NamespaceUnowned" || outcome.After == 0 {
		t.Errorf("the outcome is %+v (%v) after %v", outcome, err, j.lines)
	}
}
