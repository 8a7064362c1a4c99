package cluster

import (
	"net"
	"slices"
	"strconv"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/joining"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

// Workload is what is known of the living workload cluster.
type Workload struct {
	// Connected says that Nodes and Requests are known and kept up to date. While it is false they are empty and nothing
	// may be concluded from that.
	Connected bool
	// Reason and Message tell why it is not connected.
	Reason, Message string
	// Nodes are the Nodes of the workload cluster.
	Nodes []corev1.Node
	// Requests are the requests of kubelets for certificates.
	Requests []certificatesv1.CertificateSigningRequest
}

// Node is the Node of the given name; nil when there is none, or when that is not known.
func (w Workload) Node(name string) *corev1.Node {
	i := slices.IndexFunc(w.Nodes, func(n corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &w.Nodes[i]
}

// ReadyNodes are the names of the Nodes, and whether each is Ready.
func (w Workload) ReadyNodes() map[string]bool {
	ready := map[string]bool{}
	for i := range w.Nodes {
		ready[w.Nodes[i].Name] = joining.Ready(&w.Nodes[i])
	}
	return ready
}

// Delayed says whether a node is not begun yet, for its machine would only take processors away from masters that nobody can join
// yet: the software that emulates one keeps them busy for minutes. Where nobody looks into the workload cluster, or nothing is
// wrong with it, all nodes begin at once.
func (s *Snapshot) Delayed(n Node) bool {
	return s.emulated() && n.Role == key.RoleWorker && n.Deployment == nil && !s.Workload.Connected && s.Workload.Reason != ""
}

// emulated says that software runs the instructions of the machines because the KVMConfig demands it. Where it is a host that
// has no KVM, nobody knows before the machine begins.
func (s *Snapshot) emulated() bool {
	return s.Config.Spec.KVM.K8sKVM.Acceleration == v1alpha1.AccelerationTCG
}

// NodePods are the pods of all nodes, those among them that are not in the spec any more.
func (s *Snapshot) NodePods() []corev1.Pod {
	pods := slices.Clone(s.Leaving)
	for _, n := range s.Nodes {
		pods = append(pods, n.Pods...)
	}
	return pods
}

// APIAddresses is where the API server of the workload cluster answers: at the Service "master", whose address is
// serviceIP, and at the node pods of the masters, for operators that run where Services cannot be reached and for the
// time before a master is Ready.
func (s *Snapshot) APIAddresses(serviceIP string) []string {
	port := strconv.Itoa(int(s.Cluster().Kubernetes.API.SecurePort))
	var addresses []string
	if serviceIP != "" && serviceIP != corev1.ClusterIPNone {
		addresses = append(addresses, net.JoinHostPort(serviceIP, port))
	}
	for _, n := range s.Masters() {
		for _, pod := range n.Pods {
			if pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning {
				addresses = append(addresses, net.JoinHostPort(pod.Status.PodIP, port))
			}
		}
	}
	return addresses
}

// APIServerName is the name that clients check the certificate of the API server for: that of the Service "master" or, in a
// certificate of somebody else, another of those that the original's had.
func (s *Snapshot) APIServerName() string {
	own := key.ServiceHost(key.RoleMaster, s.ID(), s.Settings.ClusterDomain)
	certificate, err := pki.ParseCertificate(s.Certificates[pki.API].Certificate)
	if err != nil {
		return own
	}
	for _, name := range []string{own, key.RoleMaster + "." + s.Namespace(), s.Cluster().Kubernetes.API.Domain} {
		if certificate.VerifyHostname(name) == nil {
			return name
		}
	}
	return own
}
