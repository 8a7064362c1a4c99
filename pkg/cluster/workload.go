package cluster

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/joining"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

// Workload is what is known of the living workload cluster.
type Workload struct {
	// Connected says that Nodes and Requests are known and kept up to date. While it is false they are empty and nothing
	// may be concluded from that.
	Connected bool
	// Watched is how long it has been connected without a break, by the operator's clock, and Now the time by the clock of its API server.
	Watched time.Duration
	Now     time.Time
	// Reason and Message tell why it is not connected.
	Reason, Message string
	// Administrators is the group that is bound to the rights of an administrator; empty when none is.
	Administrators string
	// Nodes are the Nodes of the workload cluster.
	Nodes []corev1.Node
	// Requests are the requests of kubelets for certificates.
	Requests []certificatesv1.CertificateSigningRequest
	// DaemonSets and Deployments are those of the add-ons, as far as the operator applied them.
	DaemonSets  []appsv1.DaemonSet
	Deployments []appsv1.Deployment
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

// Joining is what decisions about requests of kubelets depend on. A node joins by its newest pod; one that is deleted takes its node along.
func (s *Snapshot) Joining() joining.World {
	world := joining.NewWorld(s.NodePods(), s.Workload.ReadyNodes(), s.Tokens, s.Now)
	for _, n := range s.Nodes {
		if pod := n.Pod(); pod != nil && pod.DeletionTimestamp == nil && s.Tokens.Known() {
			world.Expect(pod.Name, n.Joins())
		}
	}
	return world
}

// Delayed says why a node is not begun yet, and is empty when it may begin. Software that emulates machines keeps the processors
// busy for minutes, and many that begin together let each other run into their timeouts: emulated nodes begin when there is an API to
// join, one after the other, but for the first. A worker begins when those before it have joined, and beside the only master once its API
// answers; where there are several masters, once these are Ready. Nobody waits for a node that is Late. Where nobody looks into the workload
// cluster, or nothing is wrong with it, all nodes begin at once.
func (s *Snapshot) Delayed(n Node) string {
	if why := s.unsafe(n); why != "" {
		return why
	}
	if !s.Emulated() || s.Restore.Halted() || n.begun() || s.beginsFirst(n) {
		return ""
	}
	if !s.Workload.Connected {
		if s.Workload.Reason == "" || n.Role == key.RoleMaster && slices.ContainsFunc(s.Masters(), func(m Node) bool { return m.Late }) {
			return ""
		}
		return "its machine is emulated and begins once there is an API to join"
	}
	for _, earlier := range s.Nodes {
		if earlier.ID == n.ID && earlier.Role == n.Role {
			break
		}
		if until := s.awaited(earlier, n); until != "" {
			return fmt.Sprintf("its machine is emulated and begins once %s %s %s", earlier.Role, earlier.ID, until)
		}
	}
	return ""
}

// unsafe says why a node would do harm if it began, to etcd or to itself; empty when it would not.
func (s *Snapshot) unsafe(n Node) string {
	if n.Deployment == nil && s.AwaitsMember(n) {
		const unasked = "the operator cannot ask the other members without a certificate and the setting service.workload.connect"
		return "its machine begins once its member is added to etcd: " + cmp.Or(s.Etcd.Step.Message, unasked)
	}
	if signer := s.awaitsSigner(n); signer != "" {
		return fmt.Sprintf("it begins once master %s is Ready with the successor of the authority, which signs its certificate", signer)
	}
	return ""
}

// awaitsSigner is the id of the master that a worker waits for while an authority is being succeeded: one that still signs for the
// predecessor, whose certificates are not believed any more in the end. It is empty when it waits for none.
func (s *Snapshot) awaitsSigner(n Node) string {
	if n.Deployment != nil || n.Role != key.RoleWorker || pki.PhaseOf(s.Certificates[pki.CA]) != pki.Succeeded {
		return ""
	}
	for _, m := range s.Masters() {
		if m.Deployment == nil || m.Outdated() || !m.Ready {
			return m.ID
		}
	}
	return ""
}

// awaited is what an emulated node waits for of one before it, and is empty when it waits for nothing of it.
func (s *Snapshot) awaited(earlier, n Node) string {
	switch {
	case n.Role == key.RoleMaster && earlier.Deployment == nil && s.AwaitsMember(earlier):
		// Members are not added in the order of the spec: its turn comes after this one's.
		return ""
	case n.Role == key.RoleWorker && earlier.Role == key.RoleMaster && len(s.Masters()) == 1:
		// Its API answers; what it has still to do it can do beside a worker that boots.
		return ""
	case earlier.Late || s.settled(earlier):
		return ""
	case n.Role == key.RoleMaster || earlier.Role == key.RoleMaster:
		return "is Ready"
	case earlier.Step == nodestep.NetworkMissing:
		return ""
	}
	return "has joined"
}

// beginsFirst says that a node is one of the first of the spec: as many masters as are a majority together, and two machines at least.
func (s *Snapshot) beginsFirst(n Node) bool {
	first := s.Nodes[:min(len(s.Nodes), max(2, len(s.Masters())/2+1))]
	return slices.ContainsFunc(first, func(f Node) bool { return f.ID == n.ID && f.Role == n.Role })
}

// joiningTakes is how long an emulated node takes at most to become Ready when all goes well: a quarter of an hour on two cores.
const joiningTakes = 20 * time.Minute

// LateAt is when those that wait for a node wait in vain: its machine may be unable to begin, or hang. It is zero while that is not known.
func (n Node) LateAt() time.Time {
	if pod := n.Pod(); pod != nil {
		return pod.CreationTimestamp.Add(joiningTakes)
	}
	if n.Deployment == nil {
		return time.Time{}
	}
	for _, c := range n.Deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionFalse {
			return c.LastTransitionTime.Add(joiningTakes) // no pod can be made
		}
	}
	return time.Time{}
}

// minorityLasts is for how long masters without a majority are expected back: a host has booted before.
const minorityLasts = 20 * time.Minute

// LostAt is when masters without a majority are not waited for any more; zero when they have it.
func (s *Snapshot) LostAt() time.Time {
	if s.MinoritySince == nil {
		return time.Time{}
	}
	return s.MinoritySince.Add(minorityLasts)
}

// NextLate is when the next node is late, while another one waits; zero when there is none.
func (s *Snapshot) NextLate() time.Time {
	var next time.Time
	if !slices.ContainsFunc(s.Nodes, func(n Node) bool { return n.Deployment == nil && s.Delayed(n) != "" }) {
		return next
	}
	for _, n := range s.Nodes {
		if at := n.LateAt(); !n.Late && !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// settled says whether a node has come as far as it can: its Node is Ready, or lacks only a pod network that somebody else brings.
func (s *Snapshot) settled(n Node) bool {
	own := s.AddOns().CNI.Type == v1alpha1.CNINone
	return n.Step == nodestep.Ready || own && n.Step == nodestep.NetworkMissing
}

// AddOns are what the KVMConfig says of them.
func (s *Snapshot) AddOns() v1alpha1.AddOns {
	if s.Config.Spec.AddOns == nil {
		return v1alpha1.AddOns{}
	}
	return *s.Config.Spec.AddOns
}

// Emulated says that software runs the instructions of the machines because the KVMConfig demands it. Where it is a host that
// has no KVM, nobody knows before the machine begins.
func (s *Snapshot) Emulated() bool {
	return s.Config.Spec.KVM.K8sKVM.Acceleration == v1alpha1.AccelerationTCG
}

// NodePod is the node pod of that name; nil when there is none.
func (s *Snapshot) NodePod(name string) *corev1.Pod {
	pods := s.NodePods()
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &pods[i]
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
	for _, n := range s.EtcdMachines() {
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
	certificate, err := pki.ParseCertificate(s.Stored[pki.API].Certificate)
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
