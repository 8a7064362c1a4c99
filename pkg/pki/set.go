// Package pki issues and keeps the certificates of one workload cluster.
package pki

import "time"

// Names of the key pairs of a cluster. The first group is the contract of the original's cert-operator, which other
// software finds by the label giantswarm.io/certificate; the others are what today's control plane needs besides.
const (
	// API is the API server's serving certificate. One that belongs to somebody else may be an administrator's, too, as the original's was.
	API = "api"
	// Etcd is a client certificate for etcd under the common name etcd.<base>.
	Etcd = "etcd"
	// ServiceAccount is the pair that signs service account tokens.
	ServiceAccount = "service-account"
	// Worker is a client certificate under the common name worker.<base>.
	Worker = "worker"

	// CA signs everything but etcd's and the front proxy's certificates.
	CA = "ca"
	// EtcdCA signs etcd's certificates: whoever holds another certificate of the cluster cannot talk to etcd.
	EtcdCA = "etcd-ca"
	// FrontProxyCA signs FrontProxyClient.
	FrontProxyCA = "front-proxy-ca"
	// KubeletClient is how the API server introduces itself to kubelets.
	KubeletClient = "apiserver-kubelet-client"
	// EtcdClient is how the API server introduces itself to etcd.
	EtcdClient = "apiserver-etcd-client"
	// ControllerManager is the identity of kube-controller-manager.
	ControllerManager = "controller-manager"
	// Scheduler is the identity of kube-scheduler.
	Scheduler = "scheduler"
	// Operator is the operator's own client certificate, of the group system:masters: it makes the first bindings. It leaves the management
	// cluster in no boot data.
	Operator = "operator"
	// Admin is the client certificate in the administrator's kubeconfig. It holds for days, and its group has its rights by a binding.
	Admin = "admin"
	// FrontProxyClient is how the API server introduces itself to aggregated API servers.
	FrontProxyClient = "front-proxy-client"
)

// Authorities are the names of the pairs that sign others.
var Authorities = []string{CA, EtcdCA, FrontProxyCA}

// EtcdMember is the name of the serving and peer certificate of the etcd member on the given master.
func EtcdMember(nodeID string) string {
	return "etcd-" + nodeID
}

// KeyPair is a certificate with its private key and the certificate of the authority that signed it, all PEM.
//
// In an authority's own pair, CA are the certificates that are to be believed: its own and, while it is being succeeded, that
// of its successor or predecessor.
type KeyPair struct {
	CA          []byte
	Certificate []byte
	Key         []byte
	// NextCertificate and NextKey are those of an authority's successor, until it signs.
	NextCertificate []byte
	NextKey         []byte
	// Vault and NextVault are the paths of the issuers of Vault that have the keys of an authority and of its successor; empty for those
	// whose keys are here.
	Vault     string
	NextVault string
}

// Set holds the key pairs of one cluster by name.
type Set map[string]KeyPair

// OnMachines says whether a machine depends on the end of a certificate: that of ServiceAccount holds a key, and nobody looks at its end;
// Operator and Admin are on no machine.
func OnMachines(name string) bool { return name != ServiceAccount && name != Operator && name != Admin }

// FirstEnd is when the first of the certificates ends that machines depend on, zero when none can be read.
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
