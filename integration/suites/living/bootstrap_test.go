package living_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

func selfReview() *authenticationv1.SelfSubjectReview { return &authenticationv1.SelfSubjectReview{} }

// TestKubeletsJoin uses the content of their boot data. The controllers of the workload cluster sign approved requests.
func TestKubeletsJoin(t *testing.T) {
	t.Parallel()
	theLab.Run(t, ofShard("shard=boot"))
	l := create(t, home, "boot", fixture.MakeCluster("boot").Workers(2))
	l.await(t, isTrue("Available"), isTrue("NodesJoined"))

	t.Run("a node pod gets its certificates", func(t *testing.T) { getsCertificates(t, l) })
	t.Run("no other client does", func(t *testing.T) { othersGetNothing(t, l) })
	t.Run("a token that has expired is refused and removed", func(t *testing.T) { expiredTokenIsRefused(t, l) })
	t.Run("what is deleted by hand comes back", func(t *testing.T) { comesBack(t, l) })
	t.Run("what is switched off goes", func(t *testing.T) { goesWhenSwitchedOff(t, l) })
	t.Run("a token is of use once", func(t *testing.T) { tokenIsOfUseOnce(t, l) })
}

func getsCertificates(t *testing.T, l *living) {
	pod := l.pod(t, "w0aaa")
	first := l.withToken(t, l.bootToken(t, key.RoleWorker, "w0aaa"))
	groups, err := first.groups(t)
	must(t, err)
	if !slices.Contains(groups, joining.BootstrapGroup) {
		t.Errorf("the holder of the token is in the groups %v, want %s", groups, joining.BootstrapGroup)
	}
	first.receive(t, l.server, first.askClient(t, pod.Name))
	l.awaitMessage(t, "w0aaa", "RequestsCertificate: ", "its certificate is being issued")
	node := l.withCertificate(t, first)
	if groups, err = node.groups(t); err != nil || !slices.Contains(groups, "system:nodes") {
		t.Fatalf("the API server takes the holder of the certificate for a member of %v (%v)", groups, err)
	}
	// The wrong address comes first, and the right one is still approved.
	refused := node.askServing(t, pod.Name, "192.0.2.1")
	l.await(t, notApproved(joining.ReasonWrongAddress, "192.0.2.1"))
	node.receive(t, l.server, node.askServing(t, pod.Name, pod.Status.PodIP))
	l.isUndecided(t, refused)
	must(t, l.Client.Delete(t.Context(), l.request(t, refused)))

	_, err = node.clients.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}, metav1.CreateOptions{})
	must(t, err)
	l.report(t, pod, ready())
	l.awaitBehind(t, key.RoleWorker, pod)
}

// notApproved is the condition while a request is open that is not approved for the reason. It does not block the
// cluster.
func notApproved(reason string, parts ...string) wanted {
	return wanted{kind: "NodesJoined", status: metav1.ConditionTrue, reason: "RequestsNotApproved", parts: append(parts, reason)}
}

func (l *living) isUndecided(t *testing.T, request string) {
	t.Helper()
	if s := l.request(t, request).Status; len(s.Conditions) > 0 || len(s.Certificate) > 0 {
		t.Errorf("request %s has the status %+v, want none", request, s)
	}
}

func othersGetNothing(t *testing.T, l *living) {
	pod := l.pod(t, "w0aaa")
	var masters corev1.PodList
	must(t, theLab.Client.List(t.Context(), &masters, client.InNamespace(key.Namespace(l.id)), client.MatchingLabels{key.LabelApp: key.RoleMaster}))
	token := l.bootToken(t, key.RoleWorker, "w1aaa")
	for name, c := range map[string]struct{ node, reason string }{
		"a name that is no node pod's":       {"worker-stranger", joining.ReasonNotANodePod},
		"the name of another worker":         {pod.Name, joining.ReasonWrongNode},
		"the name of a master that has none": {masters.Items[0].Name, joining.ReasonWrongNode},
		"the name of a pod of another role":  {"master-stranger", joining.ReasonNotANodePod},
	} {
		t.Run(name, func(t *testing.T) {
			thief := l.withToken(t, token)
			request := thief.askClient(t, c.node)
			l.await(t, notApproved(c.reason, c.node))
			l.touch(t)
			l.isUndecided(t, request)
			must(t, l.Client.Delete(t.Context(), l.request(t, request)))
		})
	}
	l.await(t, wanted{kind: "NodesJoined", status: metav1.ConditionTrue, reason: "Done"})
}

// tokenIsOfUseOnce: a second key gets no certificate while the first may be on its way to the machine. Once the Node is
// Ready, the token is not accepted at all.
func tokenIsOfUseOnce(t *testing.T, l *living) {
	pod := l.pod(t, "w1aaa")
	token := l.bootToken(t, key.RoleWorker, "w1aaa")
	first, second := l.withToken(t, token), l.withToken(t, token)
	first.receive(t, l.server, first.askClient(t, pod.Name))
	refused := second.askClient(t, pod.Name)
	l.await(t, notApproved(joining.ReasonKeyTaken, pod.Name))
	l.isUndecided(t, refused)
	must(t, l.Client.Delete(t.Context(), l.request(t, refused)))
	noted := l.pod(t, "w1aaa")
	if record := joining.RecordOf(noted); record.Key == "" || record.Joined {
		t.Errorf("of the pod is noted %q", noted.Annotations[key.AnnotationJoining])
	}
	_, err := l.withCertificate(t, first).clients.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}, metav1.CreateOptions{})
	must(t, err)
	l.report(t, pod, ready())
	l.awaitGone(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: joining.SecretName(tokenID(token))}})
	lab.Eventually(t, patience, func() error {
		if _, err := second.groups(t); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("with the token of a node that has joined the API server answers %w, want unauthorized", err)
		}
		if record := joining.RecordOf(l.pod(t, "w1aaa")); !record.Joined {
			return fmt.Errorf("that the node has joined is not noted: %+v", record)
		}
		return nil
	})
}

func expiredTokenIsRefused(t *testing.T, l *living) {
	var seed corev1.Secret
	must(t, theLab.Client.Get(t.Context(), client.ObjectKey{
		Namespace: metav1.NamespaceDefault, Name: key.SecretName(l.id, state.KeyBootstrapToken),
	}, &seed))
	node := joining.Node{Role: key.RoleWorker, ID: "w1aaa"}
	old := joining.TokensAt(string(seed.Data[state.KeyBootstrapToken]), time.Now().Add(-3*joining.Period)).Current(node)
	left := joining.Secret(old)
	left.Annotations = ownership.Owner{Kind: key.KindKVMConfig, Namespace: metav1.NamespaceDefault, Name: l.id, Handler: "bootstrap"}.Annotations()
	must(t, l.Client.Create(t.Context(), left))
	if groups, err := l.withToken(t, old.String()).groups(t); !apierrors.IsUnauthorized(err) {
		t.Errorf("the holder of a token that has expired is in the groups %v (%v), want Unauthorized", groups, err)
	}
	l.awaitGone(t, left)
	current := joining.TokensAt(string(seed.Data[state.KeyBootstrapToken]), time.Now()).Current(node)
	if _, err := l.withToken(t, current.String()).groups(t); err != nil {
		t.Errorf("token %s, which expires %s, is not accepted: %s", current.ID, current.Expires, err)
	}
}

func (l *living) awaitGone(t testing.TB, object client.Object) {
	t.Helper()
	lab.Eventually(t, patience, func() error {
		err := l.Client.Get(context.Background(), client.ObjectKeyFromObject(object), object)
		if err == nil {
			return fmt.Errorf("%T %s still exists", object, object.GetName())
		}
		return client.IgnoreNotFound(err)
	})
}

// kept returns one object of each kind that the operator maintains in a workload cluster.
func (l *living) kept(t testing.TB) []client.Object {
	t.Helper()
	var objects []client.Object
	for _, list := range []client.ObjectList{
		&rbacv1.ClusterRoleBindingList{}, &corev1.SecretList{}, &corev1.ConfigMapList{}, &appsv1.DaemonSetList{}, &appsv1.DeploymentList{},
		&corev1.ServiceList{}, &corev1.ServiceAccountList{},
	} {
		must(t, l.Client.List(context.Background(), list, client.MatchingLabels{key.LabelManagedBy: key.Operator}))
		objects = append(objects, firstOf(t, list))
	}
	return objects
}

func comesBack(t *testing.T, l *living) {
	for _, object := range l.kept(t) {
		uid := object.GetUID()
		must(t, l.Client.Delete(t.Context(), object))
		lab.Eventually(t, patience, func() error {
			if err := l.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
			if object.GetUID() == uid {
				return fmt.Errorf("%T %s is the old one", object, object.GetName())
			}
			return nil
		})
	}
}

func goesWhenSwitchedOff(t *testing.T, l *living) {
	var sets appsv1.DaemonSetList
	must(t, l.Client.List(t.Context(), &sets, client.MatchingLabels{key.LabelManagedBy: key.Operator}))
	proxy := slices.IndexFunc(sets.Items, func(d appsv1.DaemonSet) bool { return strings.Contains(d.Name, "proxy") })
	if proxy < 0 || len(sets.Items) != 2 {
		t.Fatalf("the DaemonSets are %v, want kube-proxy and one more", sets.Items)
	}
	l.change(t, func(c *v1alpha1.KVMConfig) {
		c.Spec.AddOns = &v1alpha1.AddOns{KubeProxy: v1alpha1.AddOn{Disabled: true}, CNI: v1alpha1.CNI{Type: v1alpha1.CNIFlannel}}
	})
	l.awaitGone(t, &sets.Items[proxy])
	must(t, l.Client.List(t.Context(), &sets, client.MatchingLabels{key.LabelManagedBy: key.Operator}))
	if len(sets.Items) != 1 {
		t.Errorf("the DaemonSets are %v, want the pod network's", sets.Items)
	}
}

// tokenID returns the public part of a token in the form of boot data.
func tokenID(token string) string {
	id, _, _ := strings.Cut(token, ".")
	return id
}
