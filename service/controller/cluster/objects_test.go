package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// The tests in this file cover what a user of the original relies on. The golden files cover the rest.

// one returns the object of a handler with the name.
func one[T client.Object](t *testing.T, rendered []Rendered, handler, name string) T {
	t.Helper()
	for _, object := range objects(t, rendered, handler) {
		if typed, ok := object.(T); ok && object.GetName() == name {
			return typed
		}
	}
	t.Fatalf("handler %s makes no %T %s", handler, *new(T), name)
	return *new(T)
}

// missing returns the entries of want that got does not have.
func missing(want, got map[string]string) map[string]string {
	lost := map[string]string{}
	for name, value := range want {
		if got[name] != value {
			lost[name] = value
		}
	}
	return lost
}

// TestLabelsOfTheOriginalAreKept: the labels are kept for each of the original's kinds of object.
func TestLabelsOfTheOriginalAreKept(t *testing.T) {
	type labels = map[string]string
	rendered := must(t, renderedFull)
	for name, test := range map[string]struct {
		handler, object string
		want            labels
	}{
		"cluster role binding": {"clusterrolebinding", "full1", labels{"app": "kvm-operator", "giantswarm.io/cluster-id": "full1", "giantswarm.io/customer-id": "acme"}},
		"namespace":            {"namespace", "full1", labels{"cluster": "full1", "customer": "acme"}},
		"service account":      {"serviceaccount", "full1", labels{"cluster-id": "full1", "customer-id": "acme"}},
		"config map": {"configmap", "worker-full1-w0aaa", labels{
			"cluster": "full1", "customer": "acme", "giantswarm.io/cluster": "full1", "giantswarm.io/managed-by": "kvm-operator", "giantswarm.io/organization": "acme",
		}},
		"claim of etcd": {"pvc", "pvc-master-etcd-full1-m0aaa", labels{
			"giantswarm.io/managed-by": "kvm-operator", "customer": "acme", "app": "master", "giantswarm.io/cluster": "full1", "cluster": "full1",
			"giantswarm.io/version-bundle": "4.0.0", "node": "m0aaa",
		}},
		"claim of a host volume": {"pvc", "local-pvc-worker-full1-w1aaa-data1", labels{
			"giantswarm.io/managed-by": "kvm-operator", "customer": "acme", "app": "worker", "giantswarm.io/cluster": "full1", "cluster": "full1",
			"giantswarm.io/version-bundle": "4.0.0", "node": "w1aaa",
		}},
		"deployment": {"deployment", "worker-w0aaa", labels{
			"app": "worker", "cluster": "full1", "customer": "acme", "giantswarm.io/cluster": "full1", "giantswarm.io/organization": "acme",
			"giantswarm.io/managed-by": "kvm-operator", "node": "w0aaa",
		}},
		"ingress": {"ingress", "api", labels{"cluster": "full1", "customer": "acme", "app": "master"}},
		"service": {"service", "worker", labels{
			"cluster": "full1", "customer": "acme", "app": "worker", "giantswarm.io/cluster": "full1", "giantswarm.io/organization": "acme",
			"giantswarm.io/version-bundle": "4.0.0",
		}},
		"certificate":    {"certificates", "full1-api", labels{"giantswarm.io/certificate": "api", "giantswarm.io/cluster": "full1"}},
		"encryption key": {"randomkey", "full1-encryption", labels{"giantswarm.io/randomkey": "encryption", "giantswarm.io/cluster": "full1", "clusterID": "full1", "clusterKey": "encryption"}},
	} {
		t.Run(name, func(t *testing.T) {
			object := one[client.Object](t, rendered, test.handler, test.object)
			if diff := cmp.Diff(labels{}, missing(test.want, object.GetLabels())); diff != "" {
				t.Errorf("labels of the original are missing (+missing):\n%s", diff)
			}
		})
	}
}

func TestClusterRoleBindings(t *testing.T) {
	type binding struct{ Name, Role, Subject string }
	bindings := func(rendered []Rendered) []binding {
		var list []binding
		for _, object := range objects(t, rendered, "clusterrolebinding") {
			b := object.(*rbacv1.ClusterRoleBinding)
			subject := b.Subjects[0]
			list = append(list, binding{b.Name, b.RoleRef.Kind + " " + b.RoleRef.Name, subject.Kind + " " + subject.Namespace + "/" + subject.Name})
		}
		return list
	}
	none := simple()
	none.settings.ClusterRole = ""
	want := [][]binding{
		{{"full1", "ClusterRole kvm-operator-node", "ServiceAccount full1/full1"}, {"full1-psp", "ClusterRole kvm-operator-psp", "ServiceAccount full1/full1"}},
		{{"ab1cd", "ClusterRole kvm-operator-node", "ServiceAccount ab1cd/ab1cd"}},
		nil,
	}
	if diff := cmp.Diff(want, [][]binding{bindings(must(t, renderedFull)), bindings(must(t, renderedSimple)), bindings(none.render(t))}); diff != "" {
		t.Errorf("other bindings (-want +got):\n%s", diff)
	}
}

func TestNamespace(t *testing.T) {
	namespace := one[*corev1.Namespace](t, must(t, renderedSimple), "namespace", "ab1cd")
	if diff := cmp.Diff("privileged", namespace.Labels["pod-security.kubernetes.io/enforce"]); diff != "" {
		t.Errorf("node pods are not admitted (-want +got):\n%s", diff)
	}
	inside := simple()
	inside.config.Namespace = "ab1cd"
	_, err := build(t, inside.snapshot(t, world{}), "namespace")
	want := "False InvalidNamespace: KVMConfig ab1cd/ab1cd is in the namespace of its own cluster, which is deleted with the cluster; create it in another namespace"
	if diff := cmp.Diff(want, condition("namespace", err)); diff != "" {
		t.Errorf("another condition (-want +got):\n%s", diff)
	}
}

// TestServiceAccount: the name is the original's; unlike there, node pods get no token.
func TestServiceAccount(t *testing.T) {
	rendered := must(t, renderedSimple)
	account := one[*corev1.ServiceAccount](t, rendered, "serviceaccount", "ab1cd")
	pod := one[*appsv1.Deployment](t, rendered, "deployment", "master-m0aaa").Spec.Template.Spec
	got := []any{account.Namespace, *account.AutomountServiceAccountToken, pod.ServiceAccountName, *pod.AutomountServiceAccountToken}
	if diff := cmp.Diff([]any{"ab1cd", false, "ab1cd", false}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIngresses(t *testing.T) {
	type route struct {
		Name, TLSHost, Host, Path, Service, Class, Passthrough string
		Port                                                   int32
	}
	var got []route
	for _, object := range objects(t, must(t, renderedFull), "ingress") {
		ingress := object.(*networkingv1.Ingress)
		rule := ingress.Spec.Rules[0]
		path := rule.HTTP.Paths[0]
		got = append(got, route{
			ingress.Name, ingress.Spec.TLS[0].Hosts[0], rule.Host, path.Path, path.Backend.Service.Name, *ingress.Spec.IngressClassName,
			ingress.Annotations["nginx.ingress.kubernetes.io/ssl-passthrough"], path.Backend.Service.Port.Number,
		})
	}
	api, etcd := "api.full1.k8s.example.org", "etcd.full1.k8s.example.org"
	want := []route{{"api", api, api, "/", "master", "nginx", "true", 443}, {"etcd", etcd, etcd, "/", "master", "nginx", "true", 2379}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other routes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]client.Object(nil), objects(t, must(t, renderedSimple), "ingress")); diff != "" {
		t.Errorf("Ingresses without a class (-want +got):\n%s", diff)
	}
}

// TestServices: types, ports and annotations are the original's; there is no selector, because the handler "endpoints"
// decides which pods are behind the Services.
func TestServices(t *testing.T) {
	type port struct {
		Name                 string
		Port, Target, OnNode int32
	}
	type service struct {
		Type     corev1.ServiceType
		Ports    []port
		Selector map[string]string
	}
	describe := func(s *corev1.Service) service {
		described := service{Type: s.Spec.Type, Selector: s.Spec.Selector}
		for _, p := range s.Spec.Ports {
			described.Ports = append(described.Ports, port{p.Name, p.Port, p.TargetPort.IntVal, p.NodePort})
		}
		return described
	}
	mapped, plain := must(t, renderedFull), must(t, renderedSimple)
	master := one[*corev1.Service](t, mapped, "service", "master")
	want := map[string]service{
		"master":           {Type: "ClusterIP", Ports: []port{{"etcd", 2379, 2379, 0}, {"api", 443, 443, 0}}},
		"worker, mapped":   {Type: "NodePort", Ports: []port{{"http", 30010, 30010, 30100}, {"https", 30011, 30011, 30101}}},
		"worker, unmapped": {Type: "NodePort", Ports: []port{{"http", 30010, 30010, 0}, {"https", 30011, 30011, 0}}},
	}
	got := map[string]service{
		"master":           describe(master),
		"worker, mapped":   describe(one[*corev1.Service](t, mapped, "service", "worker")),
		"worker, unmapped": describe(one[*corev1.Service](t, plain, "service", "worker")),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other services (-want +got):\n%s", diff)
	}
	annotations := map[string]string{
		"giantswarm.io/etcd-domain": "etcd.full1.k8s.example.org:443", "giantswarm.io/prometheus-cluster": "full1",
		"prometheus.io/path": "/healthz", "prometheus.io/port": "30010", "prometheus.io/scheme": "http", "prometheus.io/scrape": "true",
	}
	if diff := cmp.Diff(map[string]string{}, missing(annotations, master.Annotations)); diff != "" {
		t.Errorf("annotations of the original are missing (+missing):\n%s", diff)
	}
}

// TestIndexesAreStoredFirst: the handler's result stops the chain until the indexes are in the status.
func TestIndexesAreStoredFirst(t *testing.T) {
	s := simple().snapshot(t, world{})
	handler := machines(nil, nil, nil)[0].Handler
	stored, err1 := handler.EnsureCreated(t.Context(), s)
	s.Config.Status.KVM = nil
	assigned, err2 := handler.EnsureCreated(t.Context(), s)
	want := []chain.Outcome{chain.Done(), chain.Store("node indexes were assigned")}
	if diff := cmp.Diff(want, []chain.Outcome{stored, assigned}); diff != "" || err1 != nil || err2 != nil {
		t.Errorf("errors %v %v, other outcomes (-want +got):\n%s", err1, err2, diff)
	}
	if diff := cmp.Diff(map[string]int32{"m0aaa": 1, "w0aaa": 2}, s.Indexes); diff != "" {
		t.Errorf("other indexes, masters first (-want +got):\n%s", diff)
	}
}
