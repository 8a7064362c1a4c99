package state

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
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// Workload is what is known of the running workload cluster.
type Workload struct {
	// Connected means that Nodes and Requests are known and kept up to date. While it is false they are empty, which
	// means nothing.
	Connected bool
	// Watched is how long it has been connected without interruption, by the operator's clock, and Now the time by the
	// clock of its API server.
	Watched time.Duration
	Now     time.Time
	// Reason and Message say why it is not connected.
	Reason, Message string
	// Administrators is the group that is bound to the rights of an administrator; empty if there is none.
	Administrators string
	// Nodes are the Nodes of the workload cluster.
	Nodes []corev1.Node
	// Requests are the certificate signing requests of kubelets.
	Requests []certificatesv1.CertificateSigningRequest
	// DaemonSets and Deployments are those of the add-ons, as far as the operator applied them.
	DaemonSets  []appsv1.DaemonSet
	Deployments []appsv1.Deployment
}

// Node returns the Node of the given name; nil if there is none, or if that is not known.
func (w Workload) Node(name string) *corev1.Node {
	i := slices.IndexFunc(w.Nodes, func(n corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &w.Nodes[i]
}

// ReadyNodes returns for each Node, by name, whether it is Ready.
func (w Workload) ReadyNodes() map[string]bool {
	ready := map[string]bool{}
	for i := range w.Nodes {
		ready[w.Nodes[i].Name] = joining.Ready(&w.Nodes[i])
	}
	return ready
}

// Joining returns what decisions about requests of kubelets depend on. A node joins by its newest pod; no node is
// expected to join by a pod that is being deleted.
func (s *Cluster) Joining() joining.World {
	world := joining.NewWorld(s.NodePods(), s.Workload.ReadyNodes(), s.Tokens, s.Now)
	for _, n := range s.Nodes {
		if pod := n.Pod(); pod != nil && pod.DeletionTimestamp == nil && s.Tokens.Known() {
			world.Expect(pod.Name, n.Joins())
		}
	}
	return world
}

// Delayed returns why a node does not start yet; empty if it may start. Emulated machines keep the processors busy for
// minutes, and many that start together run into each other's timeouts: except for the first ones, emulated nodes start
// once there is an API to join, one after the other. A worker starts once the nodes before it have joined. It starts
// beside a single master once that master's API responds, and after several masters once these are Ready. No node waits
// for one that is Late. If the operator does not connect to the workload cluster all nodes start at once.
func (s *Cluster) Delayed(n Node) string {
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
		return "its machine is emulated and is started once there is an API to join"
	}
	for _, earlier := range s.Nodes {
		if earlier.ID == n.ID && earlier.Role == n.Role {
			break
		}
		if until := s.awaited(earlier, n); until != "" {
			return fmt.Sprintf("its machine is emulated and is started once %s %s %s", earlier.Role, earlier.ID, until)
		}
	}
	return ""
}

// unsafe returns why a node would do harm, to etcd or to itself, if it started; empty if it would not.
func (s *Cluster) unsafe(n Node) string {
	if n.Deployment == nil && s.AwaitsMember(n) {
		const unasked = "the operator cannot query the other members without a certificate and the setting service.workload.connect"
		return "its machine is created once its member is added to etcd: " + cmp.Or(s.Etcd.Step.Message, unasked)
	}
	if signer := s.awaitsSigner(n); signer != "" {
		return fmt.Sprintf("its machine is started once master %s, which signs its certificate, is Ready with the new CA", signer)
	}
	return ""
}

// awaitsSigner returns the ID of the master that a worker waits for while a CA is rotated: a master that still issues
// certificates by the old CA, which will not be trusted in the end. It is empty if the worker waits for none.
func (s *Cluster) awaitsSigner(n Node) string {
	if n.Deployment != nil || n.Role != key.RoleWorker || pki.PhaseOf(s.Certificates[pki.CA]) != pki.Switched {
		return ""
	}
	for _, m := range s.Masters() {
		if m.Deployment == nil || m.Outdated() || !m.Ready {
			return m.ID
		}
	}
	return ""
}

// awaited returns what an emulated node waits for of an earlier one; empty if it does not wait for it.
func (s *Cluster) awaited(earlier, n Node) string {
	switch {
	case n.Role == key.RoleMaster && earlier.Deployment == nil && s.AwaitsMember(earlier):
		// Members are not added in the order of the spec: the turn of the earlier one comes after this one's.
		return ""
	case n.Role == key.RoleWorker && earlier.Role == key.RoleMaster && len(s.Masters()) == 1:
		// Its API responds; the master can do the rest while a worker boots.
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

// beginsFirst returns whether a node is one of the first of the spec: as many as a majority of the masters, and at
// least two machines.
func (s *Cluster) beginsFirst(n Node) bool {
	first := s.Nodes[:min(len(s.Nodes), max(2, len(s.Masters())/2+1))]
	return slices.ContainsFunc(first, func(f Node) bool { return f.ID == n.ID && f.Role == n.Role })
}

// joiningTakes is how long an emulated node takes at most to become Ready if all goes well: it takes a quarter of an
// hour on two cores.
const joiningTakes = 20 * time.Minute

// LateAt returns when other nodes stop waiting for a node, because its machine may be unable to start, or hang. It is
// zero while that is not known.
func (n Node) LateAt() time.Time {
	if pod := n.Pod(); pod != nil {
		return pod.CreationTimestamp.Add(joiningTakes)
	}
	if n.Deployment == nil {
		return time.Time{}
	}
	for _, c := range n.Deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionFalse {
			return c.LastTransitionTime.Add(joiningTakes) // no pod can be created
		}
	}
	return time.Time{}
}

// minorityLasts is for how long masters without a majority are expected to return: a host boots in less time.
const minorityLasts = 20 * time.Minute

// LostAt returns when the rollout stops waiting for masters without a majority; zero if they have a majority.
func (s *Cluster) LostAt() time.Time {
	if s.MinoritySince == nil {
		return time.Time{}
	}
	return s.MinoritySince.Add(minorityLasts)
}

// NextLate returns when the next node becomes late, while another one waits; zero if there is none.
func (s *Cluster) NextLate() time.Time {
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

// settled returns whether a node has come as far as it can: its Node is Ready, or lacks only a pod network that the
// user installs.
func (s *Cluster) settled(n Node) bool {
	own := s.AddOns().CNI.Type == v1alpha1.CNINone
	return n.Step == nodestep.Ready || own && n.Step == nodestep.NetworkMissing
}

// AddOns returns the add-ons of the KVMConfig.
func (s *Cluster) AddOns() v1alpha1.AddOns {
	if s.Config.Spec.AddOns == nil {
		return v1alpha1.AddOns{}
	}
	return *s.Config.Spec.AddOns
}

// Emulated returns whether the KVMConfig demands that machines are emulated in software. If machines are emulated
// because their host has no KVM, that is not known before they start.
func (s *Cluster) Emulated() bool {
	return s.Config.Spec.KVM.K8sKVM.Acceleration == v1alpha1.AccelerationTCG
}

// NodePod returns the node pod of that name; nil if there is none.
func (s *Cluster) NodePod(name string) *corev1.Pod {
	pods := s.NodePods()
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &pods[i]
}

// NodePods returns the pods of all nodes, including those that are no longer in the spec.
func (s *Cluster) NodePods() []corev1.Pod { return allPods(s.Leaving, s.Nodes) }

// APIAddresses returns the addresses of the workload cluster's API server: the Service "master", whose address is
// serviceIP, and the node pods of the masters, for operators that run where Services cannot be reached and for the time
// before a master is Ready.
func (s *Cluster) APIAddresses(serviceIP string) []string {
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

// APIServerName returns the name that clients verify in the certificate of the API server: that of the Service "master"
// or, in a certificate of another party, another name that the original's had.
func (s *Cluster) APIServerName() string {
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
