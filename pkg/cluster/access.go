package cluster

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

// portHTTPS is where an Ingress listens.
const portHTTPS = 443

// Access is how people reach the API of the cluster.
func (s *Snapshot) Access() v1alpha1.Access {
	if s.Config.Spec.Access == nil {
		return v1alpha1.Access{Type: v1alpha1.AccessClusterIP}
	}
	return *s.Config.Spec.Access
}

// CertificateRequests are the key pairs that the cluster needs; the API server's carries the names by which people are
// told to reach it.
func CertificateRequests(config *v1alpha1.KVMConfig, settings Settings) []pki.Request {
	var names []string
	if access := config.Spec.Access; access != nil {
		names = slices.Clone(access.CertSANs)
		if access.Host != "" && !slices.Contains(names, access.Host) {
			names = append(names, access.Host)
		}
	}
	return pki.Requests(config.Spec.Cluster, settings.ClusterDomain, names...)
}

// PublishedURL is where people reach the API: empty and the reason why while the management cluster has not given it an
// address yet.
func (s *Snapshot) PublishedURL() (address, missing string) {
	access, service := s.Access(), s.PublishedService
	host, port := cmp.Or(access.Host, key.ServiceHost(key.RoleMaster, s.ID(), s.Settings.ClusterDomain)), s.Cluster().Kubernetes.API.SecurePort
	switch access.Type {
	case v1alpha1.AccessNodePort:
		if port = nodePort(service, port); port == 0 {
			return "", "Service api has no node port yet"
		}
	case v1alpha1.AccessLoadBalancer:
		if host = cmp.Or(access.Host, balancer(service)); host == "" {
			return "", "the load balancer of Service api has no address yet; the management cluster has to provide one"
		}
	case v1alpha1.AccessIngress:
		if s.Settings.IngressClass == "" && access.Host == "" {
			return "", "no Ingress is made, for the operator was not told a class; set service.ingress.classname, or spec.access.host to where somebody else leads to the API"
		}
		host, port = cmp.Or(access.Host, s.Cluster().Kubernetes.API.Domain), portHTTPS
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(int(port))), ""
}

// PublishedServerName is the name that people's clients check the certificate of the API server for, and tell it. An Ingress finds the
// cluster by it.
func (s *Snapshot) PublishedServerName() string {
	if s.Access().Type == v1alpha1.AccessIngress {
		return s.Cluster().Kubernetes.API.Domain
	}
	return s.APIServerName()
}

// nodePort is the port on the hosts for a port of the Service; 0 while there is none.
func nodePort(service *corev1.Service, port int32) int32 {
	if service == nil {
		return 0
	}
	for _, p := range service.Spec.Ports {
		if p.Port == port {
			return p.NodePort
		}
	}
	return 0
}

// balancer is the address of the Service's load balancer; empty while there is none.
func balancer(service *corev1.Service) string {
	if service == nil {
		return ""
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		return cmp.Or(ingress.Hostname, ingress.IP)
	}
	return ""
}

// Published says whether there is a Service "api" for the world outside.
func (s *Snapshot) Published() bool {
	t := s.Access().Type
	return t == v1alpha1.AccessNodePort || t == v1alpha1.AccessLoadBalancer
}

// InternalURL is the API as pods of the management cluster and guests reach it.
func (s *Snapshot) InternalURL() string {
	host := key.ServiceHost(key.RoleMaster, s.ID(), s.Settings.ClusterDomain)
	return fmt.Sprintf("https://%s:%d", host, s.Cluster().Kubernetes.API.SecurePort)
}
