package ingress_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/ingress"
)

// TestHostsHaveOneCluster: the oldest Ingress gets a host, in whatever order clusters are reconciled, and hosts lie in
// the domains of the settings.
func TestHostsHaveOneCluster(t *testing.T) {
	const api, etcd = "api.ab1cd.k8s.example.org", "etcd.ab1cd.k8s.example.org"
	early := metav1.NewTime(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	late := metav1.NewTime(early.Add(time.Hour))
	made := func(namespace, host string, at metav1.Time, uid types.UID) networkingv1.Ingress {
		return networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "api", CreationTimestamp: at, UID: uid},
			Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: host}}},
		}
	}
	for name, test := range map[string]struct {
		ingresses []networkingv1.Ingress
		domains   []string
		objects   []string
		reason    string
	}{
		"no other Ingress has the hosts":                {nil, nil, []string{"api", "etcd"}, ""},
		"this cluster has them":                         {[]networkingv1.Ingress{made("ab1cd", api, late, "a")}, nil, []string{"api", "etcd"}, ""},
		"another cluster has one, and this one none":    {[]networkingv1.Ingress{made("evil1", api, late, "a")}, nil, []string{"etcd"}, "HostTaken"},
		"another cluster has etcd's":                    {[]networkingv1.Ingress{made("evil1", etcd, late, "a")}, nil, []string{"api"}, "HostTaken"},
		"another cluster was earlier":                   {[]networkingv1.Ingress{made("ab1cd", api, late, "a"), made("evil1", api, early, "b")}, nil, []string{"etcd"}, "HostTaken"},
		"another cluster was later":                     {[]networkingv1.Ingress{made("evil1", api, late, "a"), made("ab1cd", api, early, "b")}, nil, []string{"api", "etcd"}, ""},
		"another was made in the same second, UID less": {[]networkingv1.Ingress{made("ab1cd", api, early, "b"), made("evil1", api, early, "a")}, nil, []string{"etcd"}, "HostTaken"},
		"another was made in the same second, UID more": {[]networkingv1.Ingress{made("ab1cd", api, early, "a"), made("evil1", api, early, "b")}, nil, []string{"api", "etcd"}, ""},
		"the domain is allowed":                         {nil, []string{"example.com", "k8s.example.org"}, []string{"api", "etcd"}, ""},
		"the domain is another":                         {nil, []string{"example.com"}, nil, "HostNotAllowed"},
		"the domain only ends like it":                  {nil, []string{"s.example.org"}, nil, "HostNotAllowed"},
		"a host itself is allowed":                      {nil, []string{api}, []string{"api"}, "HostNotAllowed"},
	} {
		t.Run(name, func(t *testing.T) {
			config := fixture.MakeCluster("ab1cd").Workers(1).Obj()
			config.Spec.Cluster.Kubernetes.API.Domain, config.Spec.Cluster.Etcd.Domain = api, etcd
			s := &state.Cluster{Config: config, Settings: state.Settings{IngressClass: "nginx", IngressDomains: test.domains}, Ingresses: test.ingresses}
			desired, err := ingress.New().Build(s)
			var objects []string
			for _, object := range desired.Objects {
				objects = append(objects, object.GetName())
			}
			if diff := cmp.Diff(test.objects, objects); diff != "" {
				t.Errorf("other Ingresses (-want +got):\n%s", diff)
			}
			reason := ""
			if err != nil {
				t.Fatal(err)
			}
			if p, ok := problem.As(desired.Problem); ok {
				reason = p.Reason
			} else if desired.Wait != nil {
				reason = desired.Wait.Reason
			}
			if reason != test.reason {
				t.Errorf("the reason is %q, want %q", reason, test.reason)
			}
		})
	}
}
