package state_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// TestWherePeopleReachTheAPI: regardless of the address, the server name that clients send leads to the cluster and is
// in its certificate.
func TestWherePeopleReachTheAPI(t *testing.T) {
	const own, domain = "master.ab1cd.svc.cluster.local", "api.ab1cd.k8s.example.org"
	ports := corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443, NodePort: 30443}}}
	balanced := func(at corev1.LoadBalancerIngress) *corev1.Service {
		return &corev1.Service{Spec: ports, Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{at}}}}
	}
	for name, test := range map[string]struct {
		access    *v1alpha1.Access
		service   *corev1.Service
		url, tell string
	}{
		"nothing is said":                 {nil, nil, "https://" + own + ":443", own},
		"a host":                          {&v1alpha1.Access{Type: v1alpha1.AccessClusterIP, Host: "10.0.0.1"}, nil, "https://10.0.0.1:443", own},
		"a node port that is not there":   {&v1alpha1.Access{Type: v1alpha1.AccessNodePort, Host: "10.0.0.1"}, nil, "", own},
		"a node port":                     {&v1alpha1.Access{Type: v1alpha1.AccessNodePort, Host: "10.0.0.1"}, &corev1.Service{Spec: ports}, "https://10.0.0.1:30443", own},
		"a load balancer without address": {&v1alpha1.Access{Type: v1alpha1.AccessLoadBalancer}, &corev1.Service{Spec: ports}, "", own},
		"a load balancer with a name":     {&v1alpha1.Access{Type: v1alpha1.AccessLoadBalancer}, balanced(corev1.LoadBalancerIngress{Hostname: "lb.example.org"}), "https://lb.example.org:443", own},
		"a load balancer of IPv6":         {&v1alpha1.Access{Type: v1alpha1.AccessLoadBalancer}, balanced(corev1.LoadBalancerIngress{IP: "2001:db8::1"}), "https://[2001:db8::1]:443", own},
		"an Ingress, found by its name":   {&v1alpha1.Access{Type: v1alpha1.AccessIngress}, nil, "https://" + domain + ":443", domain},
		"an Ingress at another address":   {&v1alpha1.Access{Type: v1alpha1.AccessIngress, Host: "10.0.0.1"}, nil, "https://10.0.0.1:443", domain},
	} {
		t.Run(name, func(t *testing.T) {
			config := fixture.MakeCluster("ab1cd").With(func(spec *v1alpha1.KVMConfigSpec) {
				spec.Access = test.access
				spec.Cluster.Kubernetes.API.Domain, spec.Cluster.Kubernetes.API.SecurePort = domain, 443
			}).Obj()
			s := &state.Cluster{Config: config, Settings: state.Settings{ClusterDomain: "cluster.local", IngressClass: "nginx"}, PublishedService: test.service}
			url, missing := s.PublishedURL()
			if url != test.url || (missing == "") != (url != "") {
				t.Errorf("the address is %q (%s), want %q", url, missing, test.url)
			}
			if tell := s.PublishedServerName(); tell != test.tell {
				t.Errorf("clients tell the name %q, want %q", tell, test.tell)
			}
		})
	}
}

// TestIngressWithoutAClass: without an Ingress class no Ingress is created, and a user who requests one learns that,
// unless the user sets a host that leads to the API by other means.
func TestIngressWithoutAClass(t *testing.T) {
	for host, told := range map[string]bool{"": true, "10.0.0.1": false} {
		s := &state.Cluster{Config: fixture.MakeCluster("ab1cd").With(func(spec *v1alpha1.KVMConfigSpec) {
			spec.Access = &v1alpha1.Access{Type: v1alpha1.AccessIngress, Host: host}
		}).Obj()}
		if url, missing := s.PublishedURL(); strings.Contains(missing, "service.ingress.classname") != told || (url == "") != told {
			t.Errorf("with the host %q the address is %q (%s)", host, url, missing)
		}
	}
}

// TestEachRequestNamesItsCA: Vault signs only in the place of the CA that a request names, so each request names the CA
// of its own cluster.
func TestEachRequestNamesItsCA(t *testing.T) {
	requests := state.CertificateRequests(fixture.MakeCluster("ab1cd").Masters(3).Obj(), state.Settings{})
	authorities := map[string]string{}
	for _, request := range requests {
		if request.Usage == pki.UsageAuthority {
			authorities[request.Name] = request.CommonName
		}
	}
	if len(authorities) != 3 {
		t.Errorf("the CAs are %v", authorities)
	}
	for _, request := range requests {
		if want := authorities[request.Authority]; request.Signer != want {
			t.Errorf("the CA of %s is %q, want %q", request.Name, request.Signer, want)
		}
	}
}
