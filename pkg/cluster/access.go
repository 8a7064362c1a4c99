package cluster

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/addons"
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
	admin := pki.AdminRequest(Administrators(config, settings), cmp.Or(settings.KubeconfigTerm, DefaultKubeconfigTerm))
	return append(pki.Requests(config.Spec.Cluster, settings.ClusterDomain, names...), admin)
}

// DefaultKubeconfigTerm is how long the administrator's kubeconfig holds.
const DefaultKubeconfigTerm = 7 * 24 * time.Hour

// Administrators is the group of the holders of the administrator's kubeconfig. It changes with an annotation, and with it what the older
// copies are good for. Where the operator makes no bindings in workload clusters it is the one that needs none.
func Administrators(config *v1alpha1.KVMConfig, settings Settings) string {
	generation := config.Annotations[key.AnnotationAdministratorsGeneration]
	switch {
	case settings.MachinesOnly:
		return pki.Masters
	case generation == "":
		return addons.Administrators
	}
	// A name in a certificate has 64 letters at most, and an annotation may be anything.
	sum := sha256.Sum256([]byte(generation))
	return addons.Administrators + ":" + hex.EncodeToString(sum[:6])
}

// OperatorPair is how the operator introduces itself to the API server and whom it believes; false while it has nothing to do so with. It is what
// is stored: what was just issued may never be. A pair "api" that was adopted is what the original's masters believe, so it stays in use; one that
// an earlier version of this operator issued is of use until the operator's own is stored, which the same authority has signed.
func (s *Snapshot) OperatorPair() (pki.KeyPair, bool) {
	api, stored := s.Stored[pki.API]
	own, found := s.Stored[pki.Operator]
	switch administers := pki.Administers(api); {
	case stored && administers && (s.Adopted[pki.API] || !found):
		return api, true
	case stored && found:
		own.CA = api.CA
		return own, true
	}
	return pki.KeyPair{}, false
}

// AdministratorPair is what the administrator's kubeconfig holds, and the group that it has its rights by.
func (s *Snapshot) AdministratorPair() (pair pki.KeyPair, group string) {
	api := s.Certificates[pki.API]
	if s.Adopted[pki.API] && pki.Administers(api) {
		return api, pki.Masters
	}
	pair = s.Certificates[pki.Admin]
	pair.CA = api.CA
	return pair, Administrators(s.Config, s.Settings)
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
			return "", "no Ingress is created because service.ingress.classname is not set; set it, or set spec.access.host to a host that leads to the API by other means"
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
