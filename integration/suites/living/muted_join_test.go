package living_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
)

// TestANodeThatJoinsWhileTheAPIHangs: the operator sees it once the API answers again.
func TestANodeThatJoinsWhileTheAPIHangs(t *testing.T) {
	t.Parallel()
	theLab.Run(t, ofShard("shard=joins"))
	line := newLine(t, crowd.Address(), 0)
	l := create(t, crowd, "joins", fixture.MakeCluster("joins").Workers(2))
	where.Put(l.id, line.Address)
	l.await(t, isTrue("Available"))
	l.joinAll(t)
	l.await(t, isTrue("NodesReady"))

	line.Hang()
	gone := l.pod(t, "w1aaa")
	must(t, theLab.Client.Delete(t.Context(), gone, client.GracePeriodSeconds(0)))
	theLab.AwaitGone(t, gone)
	l.report(t, gone, unwell())
	l.join(t, l.pod(t, "w1aaa"))
	l.await(t, wanted{kind: "Available", status: metav1.ConditionFalse, reason: "Timeout"})

	line.Restore()
	l.await(t, isTrue("Available"), isTrue("NodesReady"))
}
