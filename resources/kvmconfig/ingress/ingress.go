// Package ingress is the handler of the Ingresses "api" and "etcd", which exist when an ingress class is configured.
package ingress

import (
	"fmt"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// New returns the handler.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{Handler: "ingress", Kinds: []client.Object{&networkingv1.Ingress{}}, Build: build}
}

func build(s *state.Cluster) (apply.Desired, error) {
	if s.Settings.IngressClass == "" {
		return apply.Desired{NotConfigured: true}, nil
	}
	api := s.Cluster().Kubernetes.API
	var desired apply.Desired
	var refused []string
	for _, wanted := range []struct {
		name, host string
		port       int32
	}{{"api", api.Domain, api.SecurePort}, {"etcd", s.Cluster().Etcd.Domain, key.PortEtcdClient}} {
		taker := s.HostTakenBy(wanted.host)
		switch {
		case !s.HostAllowed(wanted.host):
			refused = append(refused, wanted.host)
		case taker != "":
			desired.Wait = ptr.To(chain.Wait("HostTaken", fmt.Sprintf("host %s belongs to Ingress %s, which is older: choose another domain, or delete the other cluster", wanted.host, taker), look))
		default:
			desired.Objects = append(desired.Objects, ingress(s, wanted.name, wanted.host, wanted.port))
		}
	}
	if len(refused) > 0 {
		desired.Problem = problem.Newf("HostNotAllowed", "host %s is not in one of the domains of the setting service.ingress.alloweddomains: %s",
			strings.Join(refused, ", "), strings.Join(s.Settings.IngressDomains, ", "))
	}
	return desired, nil
}

// look bounds the time until the operator notices that a host is free, because Ingresses of other clusters do not
// trigger a reconcile.
const look = time.Minute

// ingress passes TLS through to the masters because they check client certificates.
func ingress(s *state.Cluster, name, host string, port int32) *networkingv1.Ingress {
	meta := s.Meta(name, state.App(key.RoleMaster))
	meta.Annotations = map[string]string{key.AnnotationSSLPassthrough: "true"}
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: key.RoleMaster, Port: networkingv1.ServiceBackendPort{Number: port},
	}}
	return &networkingv1.Ingress{
		ObjectMeta: meta,
		Spec: networkingv1.IngressSpec{
			IngressClassName: ptr.To(s.Settings.IngressClass),
			TLS:              []networkingv1.IngressTLS{{Hosts: []string{host}}},
			Rules: []networkingv1.IngressRule{{
				Host: host,
				IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
					Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix), Backend: backend}},
				}},
			}},
		},
	}
}
