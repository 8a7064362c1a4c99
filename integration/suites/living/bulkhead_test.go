package living_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/tenant"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/workload"
)

const (
	// inTest and inBenchmark are the numbers of clusters.
	inTest, inBenchmark = 20, 50
	// rounds is how often the clusters converge with and without a fault. The best of some rounds is more reliable than
	// a single one on a machine with other work.
	rounds = 2
	// noise is the tolerance for such a machine.
	noise = time.Second
	// goalBeside is the goal of the time beside clusters with faults, divided by the time alone. The benchmark prints
	// it.
	goalBeside = 1.05
	// troubled is the label of a cluster whose API server has a fault.
	troubled = "troubled"
)

// trouble is a fault of an API server.
type trouble struct {
	// begin starts the fault and returns the address of the API from now on.
	begin func(t testing.TB) string
	// reason is the reason of the condition. It is empty when the cluster is reachable despite the fault.
	reason workload.Reason
}

func troubles() map[string]trouble {
	return map[string]trouble{
		"refused":    {newClosed, workload.Refused},
		"black hole": {newHole, workload.Timeout},
		"slow":       {begin: func(t testing.TB) string { return newLine(t, crowd.Address(), 2*time.Second).Address }},
		"wrong authority": {func(t testing.TB) string {
			other, err := tenant.NewAuthority(crowd.IDs)
			must(t, err)
			return newStranger(t, crowd, other, clock.RealClock{})
		}, workload.UnknownAuthority},
		"expired": {func(t testing.TB) string { return newStranger(t, crowd, crowd.Authority, longAgo()) }, workload.CertificateExpired},
	}
}

// aCrowd is some healthy clusters, and one with each kind of fault.
type aCrowd struct {
	healthy []*living
	broken  map[string]*living
}

// gather creates the clusters, all of them healthy, and makes their masters join.
func gather(t testing.TB, n int) *aCrowd {
	t.Helper()
	operator := theLab.Run(t, ofShard("shard=crowd"))
	kinds := troubles()
	c := &aCrowd{broken: map[string]*living{}}
	ids := crowdIDs("c", n)
	for name := range kinds {
		c.broken[name] = create(t, crowd, "crowd", fixture.MakeCluster(ids[len(c.broken)]).Label(troubled, "yes"))
	}
	for _, id := range ids[len(kinds):] {
		c.healthy = append(c.healthy, create(t, crowd, "crowd", fixture.MakeCluster(id)))
	}
	for _, l := range c.all() {
		l.await(t, isTrue("Available"))
		l.joinAll(t)
	}
	for _, l := range c.all() {
		l.await(t, isTrue("Available"), isTrue("NodesReady"))
	}
	operator.Stop()
	return c
}

func (c *aCrowd) all() []*living {
	all := slices.Clone(c.healthy)
	for _, l := range c.broken {
		all = append(all, l)
	}
	return all
}

// converge starts an operator that has work on both sides of each healthy cluster, and returns how long all of it took.
func (c *aCrowd) converge(t testing.TB, selector string) (*lab.Operator, time.Duration) {
	t.Helper()
	for _, l := range c.healthy {
		l.strip(t, l.pod(t, "m0aaa"))
		l.change(t, func(k *v1alpha1.KVMConfig) {
			if k.Spec.Rollout == nil {
				k.Spec.Rollout = &v1alpha1.Rollout{}
			}
			k.Spec.Rollout.MaxUnavailable++
		})
	}
	began := time.Now()
	operator := theLab.Run(t, ofShard(selector))
	lab.Eventually(t, patience, func() error {
		for _, l := range c.healthy {
			if err := errors.Join(l.has(isTrue("Available"), isTrue("NodesReady")), l.labeled()); err != nil {
				return err
			}
		}
		return nil
	})
	return operator, time.Since(began)
}

// strip removes the labels that the operator set on a Node.
func (l *living) strip(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	node := &corev1.Node{}
	must(t, l.Client.Get(context.Background(), client.ObjectKey{Name: pod.Name}, node))
	before := node.DeepCopy()
	node.Labels = nil
	must(t, l.Client.Patch(context.Background(), node, client.MergeFrom(before)))
}

// labeled returns an error unless the master's Node has its labels.
func (l *living) labeled() error {
	config := l.named()
	if err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(config), config); err != nil {
		return err
	}
	node := &corev1.Node{}
	if err := l.Client.Get(context.Background(), client.ObjectKey{Name: config.Status.Nodes[0].Pod}, node); err != nil {
		return err
	}
	if missing := joining.Missing(node, joining.Labels(l.id, key.RoleMaster, "")); missing != nil {
		return fmt.Errorf("Node %s lacks the labels %v", node.Name, missing)
	}
	return nil
}

// compare makes the clusters converge alone and beside those with faults, and returns the best time of each.
func (c *aCrowd) compare(t testing.TB) (alone, beside time.Duration) {
	t.Helper()
	kinds, before := troubles(), map[string]map[string]string{}
	for name, l := range c.broken {
		before[name] = l.inventory(t)
		where.Put(l.id, kinds[name].begin(t))
	}
	alone, beside = time.Hour, time.Hour
	for range rounds {
		operator, took := c.converge(t, "shard=crowd,!troubled")
		operator.Stop()
		alone = min(alone, took)
		operator, took = c.converge(t, "shard=crowd")
		beside = min(beside, took)
		c.verify(t, kinds, before)
		operator.Stop()
	}
	return alone, beside
}

// verify checks that each cluster with a fault reports it, and that nothing else has happened to it.
func (c *aCrowd) verify(t testing.TB, kinds map[string]trouble, before map[string]map[string]string) {
	t.Helper()
	for name, l := range c.broken {
		want := isTrue("Available")
		if reason := kinds[name].reason; reason != "" {
			want = wanted{kind: "Available", status: metav1.ConditionFalse, reason: string(reason)}
		}
		l.await(t, want)
		if diff := cmp.Diff(before[name], l.inventory(t)); diff != "" {
			t.Errorf("%s: the cluster has changed (-before +now):\n%s", name, diff)
		}
	}
}

func (c *aCrowd) judge(t testing.TB) (alone, beside time.Duration) {
	t.Helper()
	alone, beside = c.compare(t)
	t.Logf("%d clusters converge within %s alone, within %s beside %d with faults", len(c.healthy), alone, beside, len(c.broken))
	if beside > alone*3/2+noise {
		t.Errorf("beside clusters with faults it takes %s, alone %s", beside, alone)
	}
	return alone, beside
}

// TestTroubleOfOneClusterIsItsOwn: the other clusters converge as if there were no faults.
func TestTroubleOfOneClusterIsItsOwn(t *testing.T) {
	t.Parallel()
	gather(t, inTest).judge(t)
}

// BenchmarkBulkheads measures the time in which clusters converge beside those whose API servers have faults.
func BenchmarkBulkheads(b *testing.B) {
	c := gather(b, inBenchmark)
	b.ResetTimer()
	for b.Loop() {
		alone, beside := c.judge(b)
		b.ReportMetric(alone.Seconds(), "s-alone")
		b.ReportMetric(beside.Seconds(), "s-beside-trouble")
		ratio := beside.Seconds() / alone.Seconds()
		b.ReportMetric(ratio, "ratio")
		b.Logf("%d clusters beside %d with faults take %.2f times as long as alone, the goal is at most %v: %s", len(c.healthy), len(c.broken), ratio, goalBeside,
			verdict(ratio <= goalBeside))
	}
}
