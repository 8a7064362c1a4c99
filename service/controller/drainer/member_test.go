package drainer

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// members is a fake Etcd.
type members struct {
	vote     etcd.Vote
	answered bool
	asked    int
}

func (m *members) Vote(types.NamespacedName, string) (vote etcd.Vote, voters int) { return m.vote, 0 }

func (m *members) Ask(context.Context, types.NamespacedName) bool {
	m.asked++
	return m.answered
}

// masterPod returns the pod of a master with a Deployment of the same name.
func masterPod(id string) *corev1.Pod {
	labels := map[string]string{key.LabelApp: key.RoleMaster, key.LabelNode: id}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ab1cd", Name: "master-" + id, Labels: labels}}
}

// TestWhichMachinesRunAMember: a master that is no longer in the spec counts by its Deployment and, if that was
// deleted, by what etcd reports.
func TestWhichMachinesRunAMember(t *testing.T) {
	config := &v1alpha1.KVMConfig{}
	config.Spec.Cluster.Masters = []v1alpha1.Node{{ID: "m1"}}
	deployment := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ab1cd", Name: "master-m2"}}
	ofSpec := deployment
	ofSpec.Name = "master-m1"
	deleted := deployment
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: now}, []string{metav1.FinalizerDeleteDependents}
	for name, test := range map[string]struct {
		id         string
		deployment *appsv1.Deployment
		vote       etcd.Vote
		want       bool
	}{
		"one of the spec":                                {"m1", &ofSpec, etcd.VoteNone, true},
		"one of the spec whose Deployment is gone":       {"m1", nil, etcd.VoteUnknown, true},
		"one of the spec that has a member again":        {"m1", nil, etcd.VoteLearner, true},
		"one of the spec whose member was taken out":     {"m1", nil, etcd.VoteNone, false},
		"one that retires":                               {"m2", &deployment, etcd.VoteNone, true},
		"one whose Deployment goes, with a vote":         {"m2", &deleted, etcd.VoteGiven, true},
		"one whose Deployment is gone, with a vote":      {"m2", nil, etcd.VoteGiven, true},
		"one whose Deployment is gone, which is silent":  {"m2", nil, etcd.VoteMissing, true},
		"one whose Deployment is gone, without a vote":   {"m2", nil, etcd.VoteLearner, false},
		"one whose Deployment is gone, without a member": {"m2", nil, etcd.VoteNone, false},
		"one whose vote is unknown":                      {"m2", nil, etcd.VoteUnknown, false},
		"one whose vote is awaited":                      {"m2", nil, etcd.VoteAwaited, true},
	} {
		t.Run(name, func(t *testing.T) {
			management := fake.NewClientBuilder()
			if test.deployment != nil {
				management.WithObjects(test.deployment.DeepCopy())
			}
			r := &Reconciler{Client: management.Build(), Etcd: &members{vote: test.vote}}
			if got, err := r.member(t.Context(), masterPod(test.id), config); got != test.want || err != nil {
				t.Errorf("it runs a member: %t (%v), want %t", got, err, test.want)
			}
		})
	}
}

// TestEtcdIsAskedEachTimeBeforeAMasterGoes covers a master whose release has been confirmed for hours because its host
// did not respond: the current state of the others counts, and an unknown state is not an answer.
func TestEtcdIsAskedEachTimeBeforeAMasterGoes(t *testing.T) {
	config := &v1alpha1.KVMConfig{}
	config.Spec.Cluster.Masters = []v1alpha1.Node{{ID: "m1"}, {ID: "m2"}, {ID: "m3"}}
	for reason, asked := range map[drain.Reason]int{drain.Draining: 0, drain.ReleaseAnnounced: 1, drain.Releasing: 1, drain.ReleaseFailed: 1} {
		pod := masterPod("m1")
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(time.Now().Add(2*time.Hour))), ptr.To(int64(7200))
		pod.Spec.NodeName, pod.Status.Conditions = "host-1", []corev1.PodCondition{drain.Held(reason, "")}
		silent := &members{}
		r := &Reconciler{Client: fake.NewClientBuilder().Build(), Etcd: silent, Clock: clock.RealClock{}}
		state, err := r.Gather(t.Context(), Leaver{Pod: pod, config: config})
		if silent.asked != asked || errors.Is(err, errUnasked) != (asked > 0) || (state == nil) != (asked > 0) {
			t.Errorf("%s: etcd was asked %d times, and then: %+v (%v)", reason, silent.asked, state, err)
		}
	}
}
