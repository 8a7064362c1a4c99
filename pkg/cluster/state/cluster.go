// Package state has what a reconcile knows of one workload cluster. Handlers decide only on that.
package state

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/rolling"
)

// Cluster is what a reconcile knows of a cluster.
type Cluster struct {
	// Config is a copy of the KVMConfig with defaults.
	Config *v1alpha1.KVMConfig
	// Settings are the operator's.
	Settings Settings

	// Indexes are those of the nodes for the next status; see Index for those that are stored.
	Indexes map[string]int32
	// Versions are those with which nodes are created if VersionsErr is nil; Components are all of the Release, if any.
	Versions    v1alpha1.Versions
	VersionsErr error
	Components  map[string]string
	// VersionsRefused and VersionsWait say why Versions are those in use and not the requested ones.
	VersionsRefused error
	VersionsWait    string

	// Certificates are the key pairs that are stored in Secrets: what peers present and trust. Those in Adopted are in
	// Secrets of another party. CertificatesErr says which are malformed or lost.
	Certificates    pki.Set
	Adopted         map[string]bool
	CertificatesErr error
	// Validity is what is known of the validity of the cluster's own key pairs.
	Validity Validity
	// KubeconfigOf is the group of the stored administrator kubeconfig: nil if there is no kubeconfig, empty if an
	// earlier version of the operator created it.
	KubeconfigOf *string

	// Keys are the random keys of the cluster by name; those in Adopted are in Secrets of another party. MissingKeys
	// are the names of those that have to be generated, and KeysErr says which are malformed or lost.
	Keys        map[string]string
	MissingKeys []string
	KeysErr     error

	// Tokens computes the current bootstrap tokens from the random key "bootstrap-token".
	Tokens joining.Tokens
	// Now is the time of the management cluster when the state was observed.
	Now time.Time

	// Workload is what is known of the workload cluster.
	Workload Workload

	// Nodes are all nodes, masters first, in the order of the spec.
	Nodes []Node
	// Gone are the masters that have machines and are not in the spec.
	Gone []Node
	// Retiring are masters that are no longer in the spec and may still be members of etcd: their machines stay.
	Retiring []Node
	// Leaving are the pods of nodes that are no longer in the spec.
	Leaving []corev1.Pod
	// Etcd is what is known of the cluster's etcd, and Founders are the IDs of its founding masters.
	Etcd     etcd.State
	Founders []string
	// Founding means that etcd is still being founded. AwaitingFounding are the founders that are no longer in the
	// spec and stay in Nodes until it is founded.
	Founding         bool
	AwaitingFounding []string
	// Restore is the restore of etcd from a snapshot, and SnapshotJob takes snapshots; nil if there is none.
	Restore     Restore
	SnapshotJob *batchv1.CronJob
	// SnapshotHangs means that the snapshot in progress takes longer than it may, and SnapshotFailed that a snapshot
	// was reported as failed.
	SnapshotHangs, SnapshotFailed bool
	// SnapshotMissed is when a snapshot was due that has not started; zero if none was. NextSnapshotLook is when the
	// next snapshot has to have started, or the one in progress has to have ended; zero if there is none.
	SnapshotMissed, NextSnapshotLook time.Time
	// Retired is the etcd data that masters have left on hosts, for the next status.
	Retired []v1alpha1.RetiredData
	// Rollout has the outdated nodes that may be replaced now.
	Rollout rolling.Decision
	// MinoritySince is since when no majority of the masters is Ready; nil while a majority is.
	MinoritySince *metav1.Time
	// BootDataErr is why boot data could not be rendered.
	BootDataErr error

	// Volumes are the persistent volumes with the label mount-tag.
	Volumes []corev1.PersistentVolume
	// PublishedService is the Service "api"; nil if it does not exist, or not yet.
	PublishedService *corev1.Service
	// Ingresses are those of other clusters with one of this cluster's hosts, and this cluster's own.
	Ingresses []networkingv1.Ingress
	// Addresses are those of the workload cluster's API server, as "host:port".
	Addresses []string
	// MasterService and WorkerService are the Services "master" and "worker"; nil while they do not exist.
	MasterService, WorkerService *corev1.Service
	// Hold says who owns the cluster's namespace, and FormerUIDs has the UID of the former KVMConfig from which it is
	// taken over.
	Hold       Hold
	FormerUIDs []types.UID
	// OwnsNamespace means that the cluster's namespace exists and belongs to the KVMConfig.
	OwnsNamespace bool
	// NamespaceGoes means that it is being deleted.
	NamespaceGoes bool
	// NamespaceTaken means that the namespace exists and belongs to another owner.
	NamespaceTaken bool
}

// Validity is what is known of the validity of key pairs.
type Validity struct {
	// Requests are those that may be fulfilled: pairs in malformed Secrets are left out.
	Requests []pki.Request
	// Renewals are what has to change in the pairs.
	Renewals pki.Renewals
	// Versions are the resource versions of the Secrets of the pairs.
	Versions map[string]string
	// Generations are those of the CAs that exist.
	Generations map[string]int64
	// Doubt is why no pair is renewed because of its age; nil if the time is not in doubt.
	Doubt error
}

// Issuing returns the names of the key pairs that have to be issued.
func (s *Cluster) Issuing() []string { return pki.Absent(s.Certificates, s.Validity.Requests) }

// AuthorityGeneration returns the generation of CAs that the KVMConfig requests.
func (s *Cluster) AuthorityGeneration() int64 {
	if c := s.Config.Spec.Certificates; c != nil {
		return c.AuthorityGeneration
	}
	return 0
}

// Node is one node of the cluster with its existing objects.
type Node struct {
	ID      string
	Role    string
	Machine v1alpha1.Machine

	// Deployment is nil if it does not exist yet.
	Deployment *appsv1.Deployment
	// Late means that LateAt has passed.
	Late bool
	// Pods are the node pods, newest first.
	Pods []corev1.Pod
	// EtcdHost is the recorded host with the data of a master's etcd; empty if it is not known, or not recorded yet.
	EtcdHost string
	// FoundHost is the host on which that data was found while EtcdHost is empty. It is recorded before it is used.
	FoundHost string
	// EtcdMark is the mark of the directory there, see key.EtcdHostPath. It may be set while EtcdHost is not known.
	EtcdMark string
	// EtcdMember is the record of its member of etcd in the status, see RecordedMember.
	EtcdMember string
	// EtcdClaim is the claim with the data of a master's etcd, if the master has had a machine.
	EtcdClaim string
	// RestoredOn is the host on which a snapshot replaced a master's data, while EtcdHost is not known.
	RestoredOn string
	// BootData is the boot data of the machine.
	BootData cloudconfig.Rendered
	// Kept are the halves of boot data that the node keeps, see KeepsBootData, but that have to change: the private
	// half with the current bootstrap token, the public half without the founding token of a member that has run.
	// Otherwise they are empty.
	Kept struct{ Public, Private string }
	// CertificatesEnd is when the first of the certificates with which its machine runs expires; zero if that is not
	// known.
	CertificatesEnd time.Time
	// Hash is the revision hash: it covers everything whose change makes a running node outdated.
	Hash string
	// Ready means that the node is Ready and up to date with its Deployment; otherwise Message says why not.
	Ready   bool
	Message string
	// Step is how far the node has come; empty if the operator does not connect to the workload cluster.
	Step nodestep.Name
}

// Names of the random keys of a cluster.
const (
	// KeyEncryption encrypts Secrets in etcd: base64 text of 32 bytes.
	KeyEncryption = "encryption"
	// KeyBootstrapToken is the key from which the bootstrap tokens of nodes are computed. It has the form of such a
	// token, "<6 characters>.<16 characters>", and is none.
	KeyBootstrapToken = "bootstrap-token"
)

// RandomKeys are the names of all random keys.
var RandomKeys = []string{KeyEncryption, KeyBootstrapToken}

// ID returns the cluster's ID.
func (s *Cluster) ID() string { return s.Config.Spec.Cluster.ID }

// Namespace returns the namespace of the cluster's objects.
func (s *Cluster) Namespace() string { return key.Namespace(s.ID()) }

// Cluster returns the part of the spec about the workload cluster as Kubernetes sees it.
func (s *Cluster) Cluster() v1alpha1.Cluster { return s.Config.Spec.Cluster }

// Version returns the operator version that the user requested, or empty.
func (s *Cluster) Version() string { return s.Config.Labels[key.LabelVersion] }

// ReleaseVersion returns the Release that the user requested, or empty.
func (s *Cluster) ReleaseVersion() string { return s.Config.Labels[key.LabelReleaseVersion] }

// Joins returns the node as bootstrap tokens know it.
func (n Node) Joins() joining.Node { return joining.Node{Role: n.Role, ID: n.ID} }

// Index returns the index of a node; 0 if it has none yet.
func (s *Cluster) Index(nodeID string) int32 {
	if s.Config.Status.KVM == nil {
		return 0
	}
	return s.Config.Status.KVM.NodeIndexes[nodeID]
}

// Masters returns the nodes with role master.
func (s *Cluster) Masters() []Node { return s.role(key.RoleMaster) }

// Workers returns the nodes with role worker.
func (s *Cluster) Workers() []Node { return s.role(key.RoleWorker) }

func (s *Cluster) role(role string) []Node {
	return slices.DeleteFunc(slices.Clone(s.Nodes), func(n Node) bool { return n.Role != role })
}

// EtcdOnVolume returns whether etcd keeps its data in persistent volumes.
func (s *Cluster) EtcdOnVolume() bool {
	return s.Config.Spec.KVM.K8sKVM.StorageType == v1alpha1.StorageTypePersistentVolume
}

// EtcdOnHost returns whether a node is a master whose etcd keeps its data in a directory of its host.
func (s *Cluster) EtcdOnHost(n Node) bool { return n.Role == key.RoleMaster && !s.EtcdOnVolume() }

// MustWait returns whether a node is outdated and may not be replaced now: until then nothing of it may change, because
// an accidental restart would apply the change.
func (s *Cluster) MustWait(n Node) bool {
	return n.Deployment != nil && n.Outdated() && !s.Rollout.Replace[n.ID]
}

// KeepsBootData returns whether the boot data of a node must not change: until it is the node's turn to be replaced,
// until it is known how its member of etcd starts, and if the node is kept only so that etcd can be founded.
func (s *Cluster) KeepsBootData(n Node) bool {
	if n.Deployment == nil {
		return false
	}
	// A halted master gets the founding token for the data that was restored from the snapshot.
	held := s.Holds(n) && !n.Halted()
	return held || s.MustWait(n) || s.AwaitsMember(n)
}

// Halted returns whether the machine of a master is stopped for a restore.
func (n Node) Halted() bool {
	return n.Deployment != nil && n.Deployment.Annotations[key.AnnotationEtcdHalted] != ""
}

// begun returns whether the machine of a node was ordered to run.
func (n Node) begun() bool { return n.Deployment != nil && !n.Halted() }

// Outdated returns whether the node's Deployment has another revision hash than the wanted one.
func (n Node) Outdated() bool {
	return n.Deployment != nil && n.Deployment.Spec.Template.Annotations[key.AnnotationNodeHash] != n.Hash
}

// Pod returns the pod that counts: the newest that is not being deleted, else the newest; nil if there is none.
func (n Node) Pod() *corev1.Pod {
	for i := range n.Pods {
		if n.Pods[i].DeletionTimestamp == nil {
			return &n.Pods[i]
		}
	}
	if len(n.Pods) > 0 {
		return &n.Pods[0]
	}
	return nil
}

// ActivePod returns the pod that runs a master's machine, once it has an address. While the old pod terminates its
// successor waits for the disks, so it is the oldest pod that has not ended.
func (n Node) ActivePod() *corev1.Pod {
	for i := range slices.Backward(n.Pods) {
		pod := &n.Pods[i]
		if pod.Status.PodIP != "" && alive(*pod) {
			return pod
		}
	}
	return nil
}

// Memory returns the guest's memory; zero if it is malformed, which the API server does not accept.
func (n Node) Memory() resource.Quantity {
	q, err := resource.ParseQuantity(n.Machine.Memory)
	if err != nil {
		return resource.Quantity{}
	}
	return q
}

// MountTags returns the tags of the host volumes, which only workers have.
func (n Node) MountTags() []string {
	var tags []string
	for _, v := range n.HostVolumes() {
		tags = append(tags, v.MountTag)
	}
	return tags
}

// HostVolumes returns the host volumes of a worker; those of masters are ignored, as the original did.
func (n Node) HostVolumes() []v1alpha1.HostVolume {
	if n.Role != key.RoleWorker {
		return nil
	}
	return n.Machine.HostVolumes
}

// NewNodes matches the nodes of the spec with their machines: by ID if machines have one, else by position.
func NewNodes(spec v1alpha1.KVMConfigSpec) []Node {
	nodes := pair(key.RoleMaster, spec.Cluster.Masters, spec.KVM.Masters)
	return append(nodes, pair(key.RoleWorker, spec.Cluster.Workers, spec.KVM.Workers)...)
}

func pair(role string, ids []v1alpha1.Node, machines []v1alpha1.Machine) []Node {
	byID := map[string]v1alpha1.Machine{}
	for i, m := range machines {
		if m.ID != "" {
			byID[m.ID] = m
		} else if i < len(ids) {
			byID[ids[i].ID] = m
		}
	}
	var nodes []Node
	for _, n := range ids {
		if m, ok := byID[n.ID]; ok {
			nodes = append(nodes, Node{ID: n.ID, Role: role, Machine: m})
		}
	}
	return nodes
}

// WithDefaults returns a copy of the KVMConfig in which every value that is derived from others is set.
func WithDefaults(config *v1alpha1.KVMConfig) *v1alpha1.KVMConfig {
	c := config.DeepCopy()
	cluster := &c.Spec.Cluster
	cluster.Kubernetes.DNS.IP = key.DNSServiceIP(*cluster)
	cluster.Etcd.Domain = key.EtcdDomain(*cluster)
	cluster.Kubernetes.Kubelet.Domain = key.WorkerDomain(*cluster)
	cluster.Kubernetes.Kubelet.Labels = strings.TrimSpace(cluster.Kubernetes.Kubelet.Labels)
	return c
}
