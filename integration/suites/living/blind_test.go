package living_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/tenant"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// makeOutdated changes the boot data of every node of the cluster.
func makeOutdated(c *v1alpha1.KVMConfig) {
	c.Spec.Cluster.Kubernetes.SSH.UserList = []v1alpha1.SSHUser{{Name: "jane", PublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA jane"}}
}

// joinAll makes all nodes join.
func (l *living) joinAll(t testing.TB) {
	t.Helper()
	for _, node := range l.config(t).Status.Nodes {
		l.join(t, l.pod(t, node.ID))
	}
}

// TestRolloutWithoutAPI: the state of the nodes is unknown, so nodes that look healthy stay.
func TestRolloutWithoutAPI(t *testing.T) {
	t.Parallel()
	t.Run("of three masters that seem to be well none is replaced, and no worker", func(t *testing.T) {
		t.Parallel()
		l, line := blindCluster(t, fixture.MakeCluster("blind3").Masters(3).Workers(1))
		before := l.inventory(t)
		l.change(t, makeOutdated)
		l.await(t, waiting("m0aaa, m1aaa, m2aaa, w0aaa"))
		l.touch(t)
		l.saysUnreachable(t)
		if diff := cmp.Diff(before, l.inventory(t)); diff != "" {
			t.Errorf("nodes were replaced (-before +now):\n%s", diff)
		}
		line.Restore()
		l.await(t, isTrue("Available"))
		lab.Eventually(t, patience, func() error {
			if cmp.Equal(before, l.inventory(t)) {
				return errNotYet
			}
			return nil
		})
	})
	t.Run("a master that is alone is replaced, workers wait", func(t *testing.T) {
		t.Parallel()
		l, _ := blindCluster(t, fixture.MakeCluster("blind1").Workers(1))
		master, worker := l.pod(t, "m0aaa"), l.pod(t, "w0aaa")
		l.change(t, makeOutdated)
		lab.Eventually(t, patience, func() error {
			if l.pod(t, "m0aaa").UID == master.UID {
				return errNotYet
			}
			return nil
		})
		l.await(t, waiting("w0aaa"))
		l.saysUnreachable(t)
		if now := l.pod(t, "w0aaa"); now.UID != worker.UID {
			t.Errorf("the worker was replaced: %s by %s", worker.Name, now.Name)
		}
		l.awaitBehind(t, key.RoleWorker, worker)
	})
}

// waiting is the condition while outdated nodes may not be replaced.
func waiting(nodes string) wanted {
	return wanted{kind: "NodesReady", status: metav1.ConditionFalse, reason: "RollingOut", parts: []string{"outdated nodes " + nodes + " wait"}}
}

// saysUnreachable checks that the status reports why nodes wait.
func (l *living) saysUnreachable(t *testing.T) {
	t.Helper()
	why := waiting("")
	why.parts = []string{"ClusterUnreachable"}
	if err := l.has(why); err != nil {
		t.Error(err)
	}
}

// blindCluster returns a cluster whose nodes are Ready and whose API server is gone.
func blindCluster(t *testing.T, c *fixture.Cluster) (*living, *tenant.Line) {
	t.Helper()
	id := c.Obj().Spec.Cluster.ID
	theLab.Run(t, ofShard("shard="+id))
	line := newLine(t, crowd.Address(), 0)
	l := create(t, crowd, id, c)
	where.Put(id, line.Address)
	l.await(t, isTrue("Available"))
	l.joinAll(t)
	l.await(t, isTrue("Available"), isTrue("NodesReady"))
	for _, n := range l.config(t).Spec.Cluster.Workers {
		l.awaitBehind(t, key.RoleWorker, l.pod(t, n.ID))
	}
	line.Cut()
	l.await(t, wanted{kind: "Available", status: metav1.ConditionFalse, reason: "Refused"})
	return l, line
}
