package state

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

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// portHTTPS is the port of an Ingress.
const portHTTPS = 443

// Access returns how users reach the API of the cluster.
func (s *Cluster) Access() v1alpha1.Access {
	if s.Config.Spec.Access == nil {
		return v1alpha1.Access{Type: v1alpha1.AccessClusterIP}
	}
	return *s.Config.Spec.Access
}

// CertificateRequests returns the key pairs that the cluster needs; the certificate of the API server has the names
// under which users reach it.
func CertificateRequests(config *v1alpha1.KVMConfig, settings Settings) []pki.Request {
	var names []string
	if access := config.Spec.Access; access != nil {
		names = slices.Clone(access.CertSANs)
		if access.Host != "" && !slices.Contains(names, access.Host) {
			names = append(names, access.Host)
		}
	}
	admin := pki.AdminRequest(config.Spec.Cluster.ID, Administrators(config, settings), cmp.Or(settings.KubeconfigTerm, DefaultKubeconfigTerm))
	return append(pki.Requests(config.Spec.Cluster, settings.ClusterDomain, names...), admin)
}

// DefaultKubeconfigTerm is how long the administrator's kubeconfig is valid.
const DefaultKubeconfigTerm = 7 * 24 * time.Hour

// Administrators returns the group of the administrator's kubeconfig. It changes with an annotation, which revokes the
// rights of older copies. If the operator creates no bindings in workload clusters it is the group that needs none.
func Administrators(config *v1alpha1.KVMConfig, settings Settings) string {
	generation := config.Annotations[key.AnnotationAdministratorsGeneration]
	switch {
	case settings.MachinesOnly:
		return pki.Masters
	case generation == "":
		return addons.Administrators
	}
	// A common name has at most 64 characters, and an annotation may have any text.
	sum := sha256.Sum256([]byte(generation))
	return addons.Administrators + ":" + hex.EncodeToString(sum[:6])
}

// OperatorPair returns the key pair with which the operator connects to the API server, and the CA that it trusts;
// false if there is none. An adopted pair "api" stays in use, because the original's masters trust it. A pair "api"
// from an earlier version of this operator is used until the operator's own pair, which the same CA signs, is stored.
func (s *Cluster) OperatorPair() (pki.KeyPair, bool) {
	api, stored := s.Certificates[pki.API]
	own, found := s.Certificates[pki.Operator]
	switch administers := pki.Administers(api); {
	case stored && administers && (s.Adopted[pki.API] || !found):
		return api, true
	case stored && found:
		own.CA = api.CA
		return own, true
	}
	return pki.KeyPair{}, false
}

// Connection returns the key pair with which the operator connects to the workload cluster, and why it does not use a
// connection; refusal is nil if it does. A connection without an address is kept, because the time without an address
// counts.
func (s *Cluster) Connection() (pair pki.KeyPair, refusal *Workload) {
	pair, stored := s.OperatorPair()
	switch {
	case s.NamespaceTaken:
		refusal = &Workload{Reason: ReasonOwnedByOther, Message: "the namespace " + s.Namespace() + " and its machines do not belong to this cluster"}
	case !stored:
		refusal = &Workload{Reason: ReasonNoCertificate, Message: "the certificates \"api\" and \"operator\" are missing"}
	case len(s.Addresses) == 0:
		refusal = &Workload{Reason: ReasonNoMaster, Message: "no master has an address yet"}
	}
	return pair, refusal
}

// Reasons why the operator does not use a connection to a workload cluster.
const (
	ReasonOwnedByOther  = "OwnedByOther"
	ReasonNoCertificate = "NoCertificate"
	ReasonNoMaster      = "NoMaster"
)

// AdministratorPair returns the key pair of the administrator's kubeconfig, and the group that gives it its rights.
func (s *Cluster) AdministratorPair() (pair pki.KeyPair, group string) {
	api := s.Certificates[pki.API]
	if s.Adopted[pki.API] && pki.Administers(api) {
		return api, pki.Masters
	}
	pair = s.Certificates[pki.Admin]
	pair.CA = api.CA
	return pair, Administrators(s.Config, s.Settings)
}

// PublishedURL returns the address at which users reach the API, or the reason why the management cluster has not
// assigned one yet.
func (s *Cluster) PublishedURL() (address, missing string) {
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
			return "", "no Ingress is created because service.ingress.classname is not set; set it, or set spec.access.host to a host at which the API is reachable by other means"
		}
		host, port = cmp.Or(access.Host, s.Cluster().Kubernetes.API.Domain), portHTTPS
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(int(port))), ""
}

// PublishedServerName returns the name that users' clients send as SNI and verify in the certificate of the API server.
// An Ingress finds the cluster by it.
func (s *Cluster) PublishedServerName() string {
	if s.Access().Type == v1alpha1.AccessIngress {
		return s.Cluster().Kubernetes.API.Domain
	}
	return s.APIServerName()
}

// nodePort returns the port on the hosts for a port of the Service; 0 if there is none.
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

// balancer returns the address of the Service's load balancer; empty if there is none.
func balancer(service *corev1.Service) string {
	if service == nil {
		return ""
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		return cmp.Or(ingress.Hostname, ingress.IP)
	}
	return ""
}

// Published returns whether there is a Service "api" for clients outside the management cluster.
func (s *Cluster) Published() bool {
	t := s.Access().Type
	return t == v1alpha1.AccessNodePort || t == v1alpha1.AccessLoadBalancer
}

// InternalURL returns the URL of the API for pods of the management cluster and for guests.
func (s *Cluster) InternalURL() string {
	host := key.ServiceHost(key.RoleMaster, s.ID(), s.Settings.ClusterDomain)
	return fmt.Sprintf("https://%s:%d", host, s.Cluster().Kubernetes.API.SecurePort)
}
