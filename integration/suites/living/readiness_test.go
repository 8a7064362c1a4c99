package living_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/tenant"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// prompt is the bound for a reaction "within seconds", on a machine that runs other tests and shares its CPUs.
const prompt = 20 * time.Second

// TestNodesAndTheirPods covers the life of one cluster that has an API server for itself.
func TestNodesAndTheirPods(t *testing.T) {
	t.Parallel()
	first := theLab.Run(t, ofShard("shard=live"))
	line := newLine(t, quiet.Address(), 0)
	l := create(t, quiet, "live", fixture.MakeCluster("live").Workers(2))
	where.Put(l.id, line.Address)
	l.await(t, isTrue("Available"), isTrue("AddOnsReady"), isTrue("NodesJoined"), absent("NodesRepaired"))

	t.Run("a worker serves once its Node is Ready, a master before", func(t *testing.T) { servesWhenReady(t, l) })
	t.Run("the address of a worker leaves with its Node, a master's stays", func(t *testing.T) { leavesWhenNotReady(t, l) })
	t.Run("the readiness gate closes when the Node is deleted", func(t *testing.T) { closesWithoutNode(t, l) })
	t.Run("Ready needs add-ons that serve, Available does not", func(t *testing.T) { needsAddOns(t, l) })
	t.Run("nothing happens while the API server is away", func(t *testing.T) { staysWhileBlind(t, l, line) })
	t.Run("writes that hang are reported, and hold up nothing else", func(t *testing.T) { writesHang(t, l) })
	t.Run("addresses follow pods at once", func(t *testing.T) { followsAtOnce(t, l, first) })
	l.change(t, func(c *v1alpha1.KVMConfig) {
		c.Spec.Remediation = &v1alpha1.Remediation{Enabled: true}
		c.Spec.Etcd = &v1alpha1.EtcdData{Snapshots: &v1alpha1.EtcdSnapshots{
			Schedule: "0 0 1 1 *", Volume: v1alpha1.SnapshotVolume{HostPath: "/var/snapshots"},
		}}
	})
	l.await(t, isTrue("SnapshotsTaken"))
	// The second operator has no events to report for the steps above, and nothing to write.
	l.settle(t, first, time.Second)
	l.await(t, isTrue("Ready"))
	first.Stop()
	t.Run("a cluster at rest costs nothing, with everything on", func(t *testing.T) { costsNothing(t, l, theLab.Run(t, ofShard("shard=live"))) })
}

// awaitBehind waits until exactly the pods are behind a Service, and returns how long that took.
func (l *living) awaitBehind(t testing.TB, service string, pods ...*corev1.Pod) time.Duration {
	t.Helper()
	began := time.Now()
	want := []string{}
	for _, p := range pods {
		want = append(want, p.Status.PodIP)
	}
	slices.Sort(want)
	lab.Eventually(t, patience, func() error {
		have, err := l.behind(service)
		slices.Sort(have)
		if err == nil && !slices.Equal(want, have) {
			err = fmt.Errorf("behind %s are %v, want %v", service, have, want)
		}
		return err
	})
	return time.Since(began)
}

// awaitGate waits until the readiness gate of a pod has a status, and returns the gate.
func (l *living) awaitGate(t testing.TB, pod *corev1.Pod, want corev1.ConditionStatus) corev1.PodCondition {
	t.Helper()
	current := &corev1.Pod{}
	lab.Eventually(t, patience, func() error {
		if err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(pod), current); err != nil {
			return err
		}
		if have := lab.ConditionOf(current, key.ConditionNodeReady); have != want {
			return fmt.Errorf("the readiness gate of pod %s is %s, want %s", pod.Name, have, want)
		}
		return nil
	})
	return gate(current, key.ConditionNodeReady)
}

func servesWhenReady(t *testing.T, l *living) {
	master, first, second := l.pod(t, "m0aaa"), l.pod(t, "w0aaa"), l.pod(t, "w1aaa")
	if got := l.awaitGate(t, first, corev1.ConditionFalse); got.Reason != joining.ReasonNodeMissing {
		t.Errorf("the readiness gate of a pod without Node is %+v, want reason %s", got, joining.ReasonNodeMissing)
	}
	l.awaitBehind(t, key.RoleWorker)
	l.awaitBehind(t, key.RoleMaster, master)
	l.awaitMessage(t, "w0aaa", "KubeletUp: ", "has not asked for a certificate")

	l.join(t, first)
	want := corev1.PodCondition{
		Type: key.ConditionNodeReady, Status: corev1.ConditionTrue, Reason: ready().Reason, Message: ready().Message,
	}
	got := l.awaitGate(t, first, corev1.ConditionTrue)
	if got.LastTransitionTime.IsZero() {
		t.Error("the readiness gate has no time")
	}
	got.LastTransitionTime = metav1.Time{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the readiness gate is another one (-want +got):\n%s", diff)
	}
	l.awaitBehind(t, key.RoleWorker, first)
	l.join(t, second)
	l.join(t, master)
	l.awaitBehind(t, key.RoleWorker, first, second)
	l.await(t, isTrue("Ready"))
	l.hasLabels(t, master, key.RoleMaster)
	l.hasLabels(t, first, key.RoleWorker)
}

// hasLabels checks the labels that only the operator can set.
func (l *living) hasLabels(t *testing.T, pod *corev1.Pod, role string) {
	t.Helper()
	node := &corev1.Node{}
	must(t, l.Client.Get(context.Background(), client.ObjectKey{Name: pod.Name}, node))
	if missing := joining.Missing(node, joining.Labels(l.id, role, "")); missing != nil {
		t.Errorf("Node %s lacks the labels %v", node.Name, missing)
	}
}

func leavesWhenNotReady(t *testing.T, l *living) {
	master, first, second := l.pod(t, "m0aaa"), l.pod(t, "w0aaa"), l.pod(t, "w1aaa")
	l.report(t, first, unwell())
	if took := l.awaitBehind(t, key.RoleWorker, second); took > prompt {
		t.Errorf("the address of a worker that is not Ready was removed after %s, want seconds", took)
	}
	l.report(t, master, unwell())
	l.awaitMessage(t, "m0aaa", "NotReady: its Node is not Ready: KubeletNotReady: container runtime is down")
	l.await(t, wanted{kind: "NodesReady", status: metav1.ConditionFalse, reason: "NodesNotReady", parts: []string{"m0aaa", "w0aaa"}})
	l.awaitGate(t, master, corev1.ConditionFalse)
	l.touch(t)
	l.awaitBehind(t, key.RoleMaster, master)
	l.report(t, master, ready())
	l.report(t, first, ready())
	l.awaitBehind(t, key.RoleWorker, first, second)
	l.await(t, isTrue("Ready"))
}

func closesWithoutNode(t *testing.T, l *living) {
	first, second := l.pod(t, "w0aaa"), l.pod(t, "w1aaa")
	l.leave(t, first)
	if got := l.awaitGate(t, first, corev1.ConditionFalse); got.Reason != joining.ReasonNodeMissing {
		t.Errorf("the readiness gate of a pod whose Node was deleted is %+v", got)
	}
	l.awaitBehind(t, key.RoleWorker, second)
	l.join(t, first)
	l.awaitBehind(t, key.RoleWorker, first, second)
	l.await(t, isTrue("Ready"))
}

// needsAddOns: the pod network and DNS of a cluster were applied long ago, and their pods fail.
func needsAddOns(t *testing.T, l *living) {
	for name, namespace := range map[string]string{"coredns": metav1.NamespaceSystem, "kube-flannel-ds": "kube-flannel"} {
		l.Serve(namespace, name, false)
		lacking := wanted{kind: "AddOnsReady", status: metav1.ConditionFalse, reason: "AddOnUnavailable", parts: []string{namespace + "/" + name}, without: []string{"cni: ", "coredns: "}}
		l.await(t, lacking, isTrue("Available"), isTrue("NodesReady"),
			wanted{kind: "Ready", status: metav1.ConditionFalse, reason: "AddOnUnavailable", parts: []string{name}})
		l.Serve(namespace, name, true)
		l.await(t, isTrue("AddOnsReady"), isTrue("Ready"))
	}
}

func staysWhileBlind(t *testing.T, l *living, line *tenant.Line) {
	first, second := l.pod(t, "w0aaa"), l.pod(t, "w1aaa")
	before := l.inventory(t)
	line.Cut()
	l.await(t, wanted{kind: "Available", status: metav1.ConditionFalse, reason: "Refused"},
		wanted{kind: "Ready", status: metav1.ConditionFalse})
	for range 3 {
		l.touch(t)
	}
	l.report(t, first, unwell()) // the operator cannot see this
	l.awaitGate(t, first, corev1.ConditionTrue)
	l.awaitBehind(t, key.RoleWorker, first, second)
	if diff := cmp.Diff(before, l.inventory(t)); diff != "" {
		t.Errorf("while the API server was away the cluster has changed (-before +now):\n%s", diff)
	}
	line.Restore()
	l.await(t, isTrue("Available"))
	l.awaitGate(t, first, corev1.ConditionFalse)
	l.report(t, first, ready())
	l.awaitBehind(t, key.RoleWorker, first, second)
	l.await(t, isTrue("Ready"))
}

// inventory returns the UIDs of everything that the operator created for the cluster, and of its pods.
func (l *living) inventory(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, object := range theLab.Objects(t, l.config(t)) {
		found[fmt.Sprintf("%T %s/%s", object, object.GetNamespace(), object.GetName())] = string(object.GetUID())
	}
	var pods corev1.PodList
	must(t, theLab.Client.List(context.Background(), &pods, client.InNamespace(key.Namespace(l.id))))
	for i := range pods.Items {
		found["pod "+pods.Items[i].Name] = string(pods.Items[i].UID)
	}
	return found
}
