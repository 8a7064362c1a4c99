package living_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// besideInTime is how long it may take until a cluster is served beside one whose API hangs: no longer than one handler
// that calls the API that hangs may take.
const besideInTime = 20 * time.Second

// TestAnAPIThatHangs: while the API of a cluster accepts connections and does not answer, another cluster is served in
// time. Once it answers, the stale Node is deleted and the unhealthy node is replaced.
func TestAnAPIThatHangs(t *testing.T) {
	t.Parallel()
	theLab.Run(t, ofShard("shard=mute"))
	line := newLine(t, crowd.Address(), 0)
	mute, beside := create(t, crowd, "mute", fixture.MakeCluster("mute").Workers(4)), create(t, crowd, "mute", fixture.MakeCluster("beside").Workers(4))
	where.Put(mute.id, line.Address)
	for _, l := range []*living{mute, beside} {
		l.await(t, isTrue("Available"))
		l.joinAll(t)
		l.await(t, isTrue("NodesReady"))
		l.change(t, func(c *v1alpha1.KVMConfig) {
			c.Spec.Remediation = &v1alpha1.Remediation{Enabled: true, UnhealthyAfter: &metav1.Duration{Duration: 2 * time.Second}}
		})
		l.await(t, isTrue("NodesReady"))
		l.awaitBehindWorker(t, l.pod(t, "w0aaa"), true)
	}

	line.Hang()
	ill, stale := mute.trouble(t)
	began := time.Now()
	beside.awaitServed(t, besideInTime, beside.trouble)
	t.Logf("beside a cluster that hangs it took %s", time.Since(began))
	if now := mute.pod(t, ill.Labels[key.LabelNode]); now.UID != ill.UID {
		t.Errorf("%s was replaced by %s although nothing is known of its Node", ill.Name, now.Name)
	}
	must(t, crowd.Client.Get(t.Context(), client.ObjectKeyFromObject(stale), stale))
	mute.await(t, wanted{kind: "Available", status: metav1.ConditionFalse, reason: "Timeout"})

	line.Restore()
	mute.awaitServed(t, patience, func(*testing.T) (*corev1.Pod, *corev1.Node) { return ill, stale })
	mute.await(t, isTrue("Available"))
}

// trouble makes a node of the cluster unhealthy and the Node of another one stale, because its pod is gone.
func (l *living) trouble(t *testing.T) (ill *corev1.Pod, stale *corev1.Node) {
	t.Helper()
	ill = l.pod(t, "w0aaa")
	gone := l.pod(t, "w1aaa")
	must(t, theLab.Client.Delete(context.Background(), gone, client.GracePeriodSeconds(0)))
	theLab.AwaitGone(t, gone)
	l.report(t, gone, unwell()) // a Node that is Ready runs somewhere, and stays
	l.report(t, ill, unwell())
	return ill, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: gone.Name}}
}

// awaitServed waits until the unhealthy node was taken from the endpoints and replaced, and until the stale Node is gone.
func (l *living) awaitServed(t *testing.T, within time.Duration, trouble func(*testing.T) (*corev1.Pod, *corev1.Node)) {
	t.Helper()
	ill, stale := trouble(t)
	lab.Eventually(t, within, func() error {
		err := crowd.Client.Get(context.Background(), client.ObjectKeyFromObject(stale), stale)
		if err == nil {
			return fmt.Errorf("the stale Node %s is still there", stale.Name)
		}
		now := &corev1.Pod{}
		replaced := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(ill), now)
		if replaced == nil && now.DeletionTimestamp == nil {
			return fmt.Errorf("the unhealthy node pod %s stays: the conditions are %+v", ill.Name, l.config(t).Status.Conditions)
		}
		return errors.Join(client.IgnoreNotFound(err), client.IgnoreNotFound(replaced))
	})
	l.awaitBehindWorker(t, ill, false)
}
