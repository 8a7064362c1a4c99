package living_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// TestDrainOfANode: a deleted node pod keeps its machine until the Node is empty, whatever happens to the operator, and
// a deleted cluster is not drained.
func TestDrainOfANode(t *testing.T) {
	t.Parallel()
	operator := theLab.Run(t, ofShard("shard=drain"))
	l := create(t, crowd, "drain", fixture.MakeCluster("drain").Workers(2))
	l.await(t, isTrue("Available"))
	l.joinAll(t)
	l.await(t, isTrue("NodesReady"))
	old, other := l.pod(t, "w0aaa"), l.pod(t, "w1aaa")
	l.awaitBehind(t, key.RoleWorker, old, other)
	l.runs(t, "web", old.Name)
	l.runs(t, "elsewhere", other.Name)
	l.keeps(t, "web")
	allow := l.refuseCordon(t, old.Name)

	must(t, theLab.Client.Delete(t.Context(), old.DeepCopy()))
	// One rejected request does not block the others.
	l.awaitDrained(t, old, corev1.ConditionFalse, drain.Draining, "default/web", "disruption budget", "its Node cannot be cordoned", "must not be cordoned")
	allow()
	l.awaitDrained(t, old, corev1.ConditionFalse, drain.Draining, "waits for default/web; default/web: ", "disruption budget")
	if node := l.node(t, old.Name); !node.Spec.Unschedulable {
		t.Error("the Node is drained and not cordoned")
	}
	l.awaitBehind(t, key.RoleWorker, other)
	replacement := l.pod(t, "w0aaa")
	if replacement.Name == old.Name {
		t.Fatal("there is no other pod of the node")
	}

	t.Run("a restarted operator continues where it was", func(t *testing.T) {
		operator.Stop()
		theLab.Run(t, ofShard("shard=drain"))
		l.awaitDrained(t, old, corev1.ConditionFalse, drain.Draining, "default/web")
		must(t, l.Client.Delete(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: webMeta("web")}))
		l.awaitEvicted(t, "web")
		// Its kubelet does this when the containers have ended.
		must(t, l.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: webMeta("web")}, client.GracePeriodSeconds(0)))
		lab.Eventually(t, patience, func() error {
			err := theLab.Client.Get(t.Context(), client.ObjectKeyFromObject(old), &corev1.Pod{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("pod %s is drained and still there: %w", old.Name, cmp.Or(err, errNotYet))
		})
		l.report(t, old, unwell())
		l.awaitGone(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: old.Name}})
		if l.evicted(t, "elsewhere") {
			t.Error("a pod of another Node was evicted")
		}
	})
	t.Run("a cluster that is deleted is not drained", func(t *testing.T) {
		theLab.Run(t, ofShard("shard=drain"))
		must(t, theLab.Client.Delete(t.Context(), l.named()))
		lab.Eventually(t, patience, func() error {
			err := theLab.Client.Get(t.Context(), client.ObjectKeyFromObject(l.named()), l.named())
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("KVMConfig %s is still there: %w", l.id, cmp.Or(err, errNotYet))
		})
		if l.evicted(t, "elsewhere") {
			t.Error("a pod was evicted while its cluster was deleted")
		}
	})
}

// TestTwoMastersDeletedAtOnceGoOneAfterTheOther: the two masters do not wait for each other forever, and etcd keeps
// quorum.
func TestTwoMastersDeletedAtOnceGoOneAfterTheOther(t *testing.T) {
	t.Parallel()
	l := createJoined(t, crowd, fixture.MakeCluster("pair").Masters(3))
	pair := []*corev1.Pod{l.pod(t, "m0aaa"), l.pod(t, "m1aaa")}
	for _, pod := range pair {
		must(t, theLab.Client.Delete(t.Context(), pod.DeepCopy()))
	}
	first := l.awaitOneGone(t, pair...)
	second := pair[1-slices.Index(pair, first)]
	replacement := l.pod(t, first.Labels[key.LabelNode])
	l.awaitTold(t, second, drain.QuorumAtRisk)
	l.join(t, replacement)
	l.awaitOneGone(t, second)
}

// awaitTold waits until the reason that blocks a pod was reported, even briefly.
func (l *living) awaitTold(t testing.TB, pod *corev1.Pod, reason drain.Reason) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(theLab.RESTConfig())
	must(t, err)
	lab.Eventually(t, patience, func() error {
		events, err := clients.EventsV1().Events(metav1.NamespaceDefault).List(context.Background(), metav1.ListOptions{FieldSelector: "reason=" + string(reason)})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Related != nil && e.Related.Name == pod.Name }) {
			return fmt.Errorf("no event says that pod %s is held for %s", pod.Name, reason)
		}
		return nil
	})
}

// awaitOneGone waits until one of the pods no longer exists, and returns it.
func (l *living) awaitOneGone(t testing.TB, pods ...*corev1.Pod) *corev1.Pod {
	t.Helper()
	var gone *corev1.Pod
	lab.Eventually(t, patience, func() error {
		for _, pod := range pods {
			if err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(pod), &corev1.Pod{}); apierrors.IsNotFound(err) {
				gone = pod
				return nil
			}
		}
		return fmt.Errorf("%d pods of cluster %s are there: %w", len(pods), l.id, errNotYet)
	})
	return gone
}

// TestUnhealthyNodesAreReplaced: unhealthy nodes are only replaced if that is enabled.
func TestUnhealthyNodesAreReplaced(t *testing.T) {
	t.Parallel()
	theLab.Run(t, ofShard("shard=repair"))
	l := create(t, crowd, "repair", fixture.MakeCluster("repair").Workers(2))
	l.await(t, isTrue("Available"))
	l.joinAll(t)
	l.await(t, isTrue("NodesReady"))
	ill, other := l.pod(t, "w0aaa"), l.pod(t, "w1aaa")
	l.report(t, ill, unwell())
	l.await(t, absent("NodesRepaired"), wanted{kind: "NodesReady", status: metav1.ConditionFalse})
	if now := l.pod(t, "w0aaa"); now.Name != ill.Name {
		t.Fatalf("the node is replaced although remediation is disabled")
	}
	l.change(t, func(c *v1alpha1.KVMConfig) {
		c.Spec.Remediation = &v1alpha1.Remediation{Enabled: true, UnhealthyAfter: &metav1.Duration{Duration: 2 * time.Second}}
	})
	lab.Eventually(t, patience, func() error {
		if now := l.pod(t, "w0aaa"); now.Name == ill.Name {
			return fmt.Errorf("pod %s is not replaced: %+v", ill.Name, l.config(t).Status.Conditions)
		}
		return nil
	})
	l.awaitGone(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ill.Name}})
	if now := l.pod(t, "w1aaa"); now.Name != other.Name {
		t.Errorf("the healthy node was replaced: %s by %s", other.Name, now.Name)
	}
}

func webMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Labels: map[string]string{"app": name}}
}

// runs makes a pod of the workload cluster run on a Node.
func (l *living) runs(t testing.TB, name, node string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: webMeta(name), Spec: corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{{Name: "web", Image: "example.com/web"}},
	}}
	must(t, client.IgnoreAlreadyExists(l.Client.Create(context.Background(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "default"},
	})))
	must(t, l.Client.Create(context.Background(), pod))
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	must(t, l.Client.Status().Update(context.Background(), pod))
}

// keeps blocks evictions of a pod. No controller updates the budget, so it allows none.
func (l *living) keeps(t testing.TB, name string) {
	t.Helper()
	must(t, l.Client.Create(context.Background(), &policyv1.PodDisruptionBudget{
		ObjectMeta: webMeta(name),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		},
	}))
}

// refuseCordon makes the API server reject the cordon of a Node until the returned function is called.
func (l *living) refuseCordon(t testing.TB, name string) (allow func()) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(l.RESTConfig())
	must(t, err)
	policies := clients.AdmissionregistrationV1()
	_, err = policies.ValidatingAdmissionPolicies().Create(context.Background(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				ResourceNames: []string{name}, RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: "!has(object.spec.unschedulable) || !object.spec.unschedulable", Message: "this Node must not be cordoned",
			}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(context.Background(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	lab.Eventually(t, patience, func() error {
		_, err := clients.CoreV1().Nodes().Patch(context.Background(), name, types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return fmt.Errorf("Node %s can be cordoned: %w", name, errNotYet)
		}
		return nil
	})
	return func() {
		must(t, policies.ValidatingAdmissionPolicyBindings().Delete(context.Background(), name, metav1.DeleteOptions{}))
	}
}

func (l *living) node(t testing.TB, name string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	must(t, l.Client.Get(context.Background(), client.ObjectKey{Name: name}, node))
	return node
}

func (l *living) evicted(t testing.TB, name string) bool {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: webMeta(name)}
	must(t, l.Client.Get(context.Background(), client.ObjectKeyFromObject(pod), pod))
	return pod.DeletionTimestamp != nil
}

func (l *living) awaitEvicted(t testing.TB, name string) {
	t.Helper()
	lab.Eventually(t, patience, func() error {
		if !l.evicted(t, name) {
			return fmt.Errorf("pod %s is not evicted", name)
		}
		return nil
	})
}

// awaitDrained waits until the condition of a node pod reports what the drain waits for.
func (l *living) awaitDrained(t testing.TB, pod *corev1.Pod, status corev1.ConditionStatus, reason drain.Reason, parts ...string) {
	t.Helper()
	lab.Eventually(t, patience, func() error {
		current := &corev1.Pod{}
		if err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(pod), current); err != nil {
			return err
		}
		got := gate(current, key.ConditionDrained)
		if got.Status == status && got.Reason == string(reason) && containsAll(got.Message, parts) {
			return nil
		}
		return fmt.Errorf("pod %s has the condition %+v, want %s and %q", pod.Name, got, reason, strings.Join(parts, ", "))
	})
}
