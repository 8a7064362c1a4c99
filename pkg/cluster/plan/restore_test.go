package plan

import (
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// restoring is a cluster that is to be restored from a snapshot, and what has happened of it so far.
type restoring struct {
	checked, committed, done bool
	// running and placed are by master.
	running, placed [2]bool
}

// phases in the order in which a restore passes them.
var phases = []etcd.Phase{etcd.Checking, etcd.Stopping, etcd.Committing, etcd.Placing, etcd.Founding, etcd.NotRestoring}

func (r restoring) plan(t *testing.T, base Observed) *state.Cluster {
	t.Helper()
	o := base
	o.Config = base.Config.DeepCopy()
	o.Config.Spec.Etcd = &v1alpha1.EtcdData{Restore: &v1alpha1.EtcdRestore{Snapshot: "ab1cd-20261122T060000Z.db"}}
	annotations := map[string]string{}
	if r.committed {
		annotations[key.AnnotationEtcdRestoring] = "ab1cd-20261122T060000Z.db/0"
	}
	if r.done {
		annotations = map[string]string{key.AnnotationEtcdRestored: "ab1cd-20261122T060000Z.db/0#0", key.AnnotationEtcdFounders: "m0aaa,m1aaa"}
	}
	o.Namespace.Annotations = annotations
	o.Objects = copied(base.Objects)
	ticket := planner.Plan(o, now).RestoreToken()
	job := func(node string) {
		j := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: key.EtcdRestoreName(ticket, node)}}
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		o.Restores = append(o.Restores, j)
	}
	if r.checked {
		job("")
	}
	for i, id := range []string{"m0aaa", "m1aaa"} {
		if r.placed[i] {
			job(id)
		}
		if !r.running[i] {
			o.pod(t, id).Status.Phase = corev1.PodSucceeded
		}
	}
	return planner.Plan(o, now)
}

// next returns what may happen next in a phase: what a handler or a Job does, and that a machine ends. Machines that the
// operator does not stop continue to run.
func (r restoring) next(phase etcd.Phase, halted bool) (next []restoring) {
	with := func(change func(*restoring)) { changed := r; change(&changed); next = append(next, changed) }
	for i := range r.running {
		switch {
		case r.running[i] && halted:
			with(func(n *restoring) { n.running[i] = false })
		case !r.placed[i] && phase == etcd.Placing:
			with(func(n *restoring) { n.placed[i] = true })
		}
	}
	switch phase {
	case etcd.Checking:
		with(func(n *restoring) { n.checked = true })
	case etcd.Committing:
		with(func(n *restoring) { n.committed = true })
	case etcd.Founding:
		with(func(n *restoring) { n.done, n.committed = true, false })
	default:
	}
	return next
}

// TestARestoreMovesForward walks through everything that can happen while a cluster is restored: it passes its phases in
// order, replaces data only while all machines are down, and replaces no node meanwhile.
func TestARestoreMovesForward(t *testing.T) {
	base := settled(t, fixture.MakeCluster("ab1cd").Masters(2).Workers(1))
	at := func(phase etcd.Phase) int {
		for i := range phases {
			if phases[i] == phase {
				return i
			}
		}
		t.Fatalf("phase %q", phase)
		return 0
	}
	seen, reached := map[restoring]bool{}, map[etcd.Phase]bool{}
	open := []restoring{{running: [2]bool{true, true}}, {running: [2]bool{false, true}}, {}}
	for len(open) > 0 {
		r := open[0]
		open = open[1:]
		if seen[r] {
			continue
		}
		seen[r] = true
		s := r.plan(t, base)
		phase, halted := s.Restore.Phase(), s.Restore.Halted()
		reached[phase] = true
		runs := r.running[0] || r.running[1]
		switch {
		case runs && at(phase) >= at(etcd.Committing) && phase != etcd.NotRestoring:
			t.Errorf("%+v: %s while a machine runs", r, phase)
		case halted && s.Etcd.Known():
			t.Errorf("%+v: members that are stopped are asked", r)
		case halted && len(s.Rollout.Replace) > 0:
			t.Errorf("%+v: %v is replaced", r, s.Rollout.Replace)
		case halted != (at(phase) > at(etcd.Checking) && phase != etcd.NotRestoring):
			t.Errorf("%+v: in phase %q masters are stopped: %t", r, phase, halted)
		}
		next := r.next(phase, halted)
		if len(next) == 0 && phase != etcd.NotRestoring {
			t.Errorf("%+v: nothing follows phase %q", r, phase)
		}
		for _, n := range next {
			after := n.plan(t, base).Restore.Phase()
			skips := at(after)-at(phase) > 1 && (after != etcd.Committing || runs)
			if at(after) < at(phase) || skips {
				t.Errorf("%+v: phase %q is followed by %q", r, phase, after)
			}
		}
		open = append(open, next...)
	}
	if len(reached) != len(phases) {
		t.Errorf("the phases %v were passed", fmt.Sprint(reached))
	}
	t.Logf("%d situations", len(seen))
}
