// Package pki issues and keeps the certificates of one workload cluster.
package pki

import "time"

// Names of the key pairs of a cluster. The first group is the contract of the original's cert-operator: other software
// finds these pairs by the label giantswarm.io/certificate. The other pairs are what today's control plane needs in
// addition.
const (
	// API is the serving certificate of the API server. One that another issuer provided may also be an administrator's
	// certificate, as the original's was.
	API = "api"
	// Etcd is a client certificate for etcd with the common name etcd.<base>.
	Etcd = "etcd"
	// ServiceAccount is the pair that signs service account tokens.
	ServiceAccount = "service-account"
	// Worker is a client certificate with the common name worker.<base>.
	Worker = "worker"

	// CA signs everything except the certificates of etcd and of the front proxy.
	CA = "ca"
	// EtcdCA signs the certificates of etcd, so that holders of other certificates of the cluster cannot talk to etcd.
	EtcdCA = "etcd-ca"
	// FrontProxyCA signs FrontProxyClient.
	FrontProxyCA = "front-proxy-ca"
	// KubeletClient authenticates the API server to kubelets.
	KubeletClient = "apiserver-kubelet-client"
	// EtcdClient authenticates the API server to etcd.
	EtcdClient = "apiserver-etcd-client"
	// ControllerManager is the identity of kube-controller-manager.
	ControllerManager = "controller-manager"
	// Scheduler is the identity of kube-scheduler.
	Scheduler = "scheduler"
	// Operator is the operator's own client certificate, in the group system:masters, with which it creates the first
	// bindings. It is not part of any boot data, so it never leaves the management cluster.
	Operator = "operator"
	// Admin is the client certificate in the administrator's kubeconfig. It is valid for days, and its group gets its
	// rights from a binding.
	Admin = "admin"
	// FrontProxyClient authenticates the API server to aggregated API servers.
	FrontProxyClient = "front-proxy-client"
)

// Authorities are the names of the CAs.
var Authorities = []string{CA, EtcdCA, FrontProxyCA}

// EtcdMember returns the name of the serving and peer certificate of the etcd member on the given master.
func EtcdMember(nodeID string) string {
	return "etcd-" + nodeID
}

// KeyPair is a certificate with its private key and the certificate of the CA that signed it, all PEM.
//
// In a CA's own pair, the field CA is the trust bundle: the CA itself and, while it is being rotated, its successor or
// predecessor.
type KeyPair struct {
	CA          []byte
	Certificate []byte
	Key         []byte
	// NextCertificate and NextKey are the next CA of a rotation, until it issues certificates.
	NextCertificate []byte
	NextKey         []byte
	// Vault and NextVault are the paths of the Vault issuers that have the keys of a CA and of its successor. They are
	// empty if the keys are in this pair.
	Vault     string
	NextVault string
}

// Set holds the key pairs of one cluster by name.
type Set map[string]KeyPair

// OnMachines reports whether machines depend on the expiry of a certificate. Only the key of ServiceAccount is used, so
// that its expiry does not matter; Operator and Admin are not on any machine.
func OnMachines(name string) bool { return name != ServiceAccount && name != Operator && name != Admin }

// FirstEnd returns when the first of the certificates that machines depend on expires. It is zero if none can be
// parsed.
func (s Set) FirstEnd() time.Time {
	var first time.Time
	for name, pair := range s {
		cert, err := ParseCertificate(pair.Certificate)
		if err == nil && OnMachines(name) && (first.IsZero() || cert.NotAfter.Before(first)) {
			first = cert.NotAfter
		}
	}
	return first
}
