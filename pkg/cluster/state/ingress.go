package state

import (
	"cmp"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// IngressHosts returns the hosts of the Ingresses of a cluster. The KVMConfig has to have its defaults.
func IngressHosts(config *v1alpha1.KVMConfig) []string {
	return []string{config.Spec.Cluster.Kubernetes.API.Domain, config.Spec.Cluster.Etcd.Domain}
}

// HostAllowed returns whether a host is in one of the domains that the operator allows.
func (s *Cluster) HostAllowed(host string) bool {
	return len(s.Settings.IngressDomains) == 0 || slices.ContainsFunc(s.Settings.IngressDomains, func(domain string) bool {
		domain = strings.ToLower(strings.Trim(domain, "."))
		return host == domain || strings.HasSuffix(host, "."+domain)
	})
}

// HostTakenBy returns the Ingress of another cluster, as <namespace>/<name>, that takes precedence for a host; empty if
// there is none. The oldest Ingress has the host, and among those of the same age the one with the smallest UID: the
// API server sets both, so every operator decides the same.
func (s *Cluster) HostTakenBy(host string) string {
	var first *networkingv1.Ingress
	for i := range s.Ingresses {
		other := &s.Ingresses[i]
		takes := slices.ContainsFunc(other.Spec.Rules, func(rule networkingv1.IngressRule) bool { return rule.Host == host })
		if takes && (first == nil || compareAge(other, first) < 0) {
			first = other
		}
	}
	if first == nil || first.Namespace == s.Namespace() {
		return ""
	}
	return first.Namespace + "/" + first.Name
}

func compareAge(a, b *networkingv1.Ingress) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(string(a.UID), string(b.UID)))
}
