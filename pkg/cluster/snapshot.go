// Package cluster holds the snapshot of one workload cluster: everything a reconcile has read, gathered once, before any
// decision. Handlers decide on it and on nothing else.
package cluster

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
	"github.com/kvm-operator/kvm-operator/pkg/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/joining"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
	"github.com/kvm-operator/kvm-operator/pkg/remediation"
	"github.com/kvm-operator/kvm-operator/pkg/rolling"
)

// Snapshot is what a reconcile knows of a cluster.
type Snapshot struct {
	// Config is a copy of the KVMConfig with defaults filled in; handlers draft its status.
	Config *v1alpha1.KVMConfig
	// Settings are the operator's.
	Settings Settings

	// Versions are what nodes are made with when VersionsErr is nil; Components are all of the Release, if any.
	Versions    v1alpha1.Versions
	VersionsErr error
	Components  map[string]string
	// VersionsRefused and VersionsWait say why Versions are those in force and not those that are asked for.
	VersionsRefused error
	VersionsWait    string

	// Certificates are the key pairs of the cluster; those in Adopted live in Secrets of somebody else.
	// CertificatesErr tells which are missing or malformed.
	Certificates    pki.Set
	Adopted         map[string]bool
	CertificatesErr error
	// Stored are the key pairs as their Secrets have them. Whoever is met shows and believes these.
	Stored pki.Set
	// KubeconfigOf is the group that the stored kubeconfig of the administrator has its rights by: nil when there is no kubeconfig, empty when
	// an earlier version of the operator has made it.
	KubeconfigOf *string
	// Terms is what is known of the terms of the cluster's own key pairs.
	Terms Terms

	// Keys are the random keys of the cluster by name; those in Adopted live in Secrets of somebody else.
	Keys    map[string]string
	KeysErr error

	// Tokens makes the bootstrap tokens of this time, out of the key of that name.
	Tokens joining.Tokens
	// Now is the time of the management cluster when the snapshot was made.
	Now time.Time

	// Workload is what the workload cluster tells of itself.
	Workload Workload

	// Nodes are all nodes, masters first, in the order of the spec.
	Nodes []Node
	// Retiring are masters that are not in the spec any more and may be members of etcd yet: their machines stay.
	Retiring []Node
	// Leaving are the pods of nodes that are not in the spec any more.
	Leaving []corev1.Pod
	// Etcd is what is known of the cluster's etcd, and Founders are the ids of the masters that it began with.
	Etcd     etcd.State
	Founders []string
	// Founding says that etcd is still being founded, and Held are those of the founders that are not in the spec any more and stay, as
	// Nodes, for that.
	Founding bool
	Held     []string
	// Restore is the way back to a snapshot of it, and SnapshotJob takes snapshots; nil when there is none.
	Restore     Restore
	SnapshotJob *batchv1.CronJob
	// SnapshotHangs says that the last one is being taken for longer than it may be, and SnapshotFailed that it has been told that one was not
	// taken.
	SnapshotHangs, SnapshotFailed bool
	// SnapshotMissed is when one was due that has not begun; zero when none was.
	SnapshotMissed time.Time
	// Retired is the data of etcd that masters have left on hosts, as the status is to tell.
	Retired []v1alpha1.RetiredData
	// Rollout says which outdated nodes may be replaced now.
	Rollout rolling.Decision
	// MinoritySince is since when no majority of the masters is Ready; nil while one is.
	MinoritySince *metav1.Time
	// BootDataErr is why boot data could not be rendered.
	BootDataErr error

	// Volumes are the persistent volumes labelled mount-tag.
	Volumes []corev1.PersistentVolume
	// PublishedService is the Service "api"; nil when there is none, or none yet.
	PublishedService *corev1.Service
	// Ingresses are those of other clusters with one of this cluster's hosts, and this cluster's own.
	Ingresses []networkingv1.Ingress
	// MasterService and WorkerService are the Services "master" and "worker"; nil while they do not exist.
	MasterService, WorkerService *corev1.Service
	// Hold says whose the cluster's namespace is, and FormerUIDs has the UID of the former KVMConfig from which it is taken over.
	Hold       Hold
	FormerUIDs []types.UID
	// OwnsNamespace says that the cluster's namespace exists and belongs to the KVMConfig and not to somebody else.
	OwnsNamespace bool
	// NamespaceTaken says that the namespace exists and belongs to somebody else.
	NamespaceTaken bool
}

// Terms is what is known of how long key pairs hold.
type Terms struct {
	// Renewed tells, by name, why a pair was issued anew and has to be stored in the place of the version that was read, which is in
	// Versions.
	Renewed, Versions map[string]string
	// Generations are those of the authorities that exist.
	Generations map[string]int64
	// Next is when the next pair has to be issued anew; zero when none ever has.
	Next time.Time
	// Failed is why pairs that have to be issued anew could not be.
	Failed error
	// Successor makes the pair that an authority is succeeded by.
	Successor func(name string) (pki.KeyPair, error)
}

// AuthorityGeneration is the generation of authorities that the KVMConfig asks for.
func (s *Snapshot) AuthorityGeneration() int64 {
	if c := s.Config.Spec.Certificates; c != nil {
		return c.AuthorityGeneration
	}
	return 0
}

// Node is one node of the cluster with what exists of it.
type Node struct {
	ID      string
	Role    string
	Machine v1alpha1.Machine

	// Deployment is nil when there is none yet.
	Deployment *appsv1.Deployment
	// Late says that LateAt is over.
	Late bool
	// Pods are the node pods, the newest first.
	Pods []corev1.Pod
	// EtcdHost is the host with the data of a master's etcd, as far as it is known; the handler "placement" drafts it.
	EtcdHost string
	// EtcdMark is the mark of the directory there, see key.EtcdHostPath; also while EtcdHost is not known.
	EtcdMark string
	// EtcdMember is what the status says of its member of etcd, see WrittenMark.
	EtcdMember string
	// EtcdClaim is the claim with the data of a master's etcd, where it has had a machine.
	EtcdClaim string
	// RestoredOn is the host on which the snapshot was put in the place of a master's data, while EtcdHost is not known.
	RestoredOn string
	// BootData is what the machine boots with.
	BootData cloudconfig.Rendered
	// Kept are the halves that the node keeps, see KeepsBootData, where they have to change all the same: the private one with the bootstrap
	// token of now, the public one without the ticket of a member that has run. Else they are empty.
	Kept struct{ Public, Private string }
	// CertificatesEnd is when the first of the certificates ends that its machine runs with; zero where that is not known.
	CertificatesEnd time.Time
	// Hash is that of everything that makes a running node outdated.
	Hash string
	// Ready says that the node serves in the form that its Deployment asks for; otherwise Message says why not.
	Ready   bool
	Message string
	// Step is how far the node has come; empty where nobody looks into the workload cluster.
	Step nodestep.Name
}

// Names of the random keys of a cluster.
const (
	// KeyEncryption encrypts Secrets in etcd: base64 text of 32 bytes.
	KeyEncryption = "encryption"
	// KeyBootstrapToken is what the tokens are made of by which kubelets ask for their certificates. It has the form of
	// such a token, "<6 characters>.<16 characters>", and is none.
	KeyBootstrapToken = "bootstrap-token"
)

// RandomKeys are the names of all of them.
var RandomKeys = []string{KeyEncryption, KeyBootstrapToken}

// ID is the cluster's id.
func (s *Snapshot) ID() string { return s.Config.Spec.Cluster.ID }

// Namespace is the namespace of the cluster's objects.
func (s *Snapshot) Namespace() string { return key.Namespace(s.ID()) }

// Cluster is the workload cluster as Kubernetes sees it.
func (s *Snapshot) Cluster() v1alpha1.Cluster { return s.Config.Spec.Cluster }

// Version is the operator version that the user asked for, or empty.
func (s *Snapshot) Version() string { return s.Config.Labels[key.LabelVersion] }

// ReleaseVersion is the Release that the user asked for, or empty.
func (s *Snapshot) ReleaseVersion() string { return s.Config.Labels[key.LabelReleaseVersion] }

// Joins is the node as bootstrap tokens know it.
func (n Node) Joins() joining.Node { return joining.Node{Role: n.Role, ID: n.ID} }

// Index is the index of a node; 0 when it has none yet.
func (s *Snapshot) Index(nodeID string) int32 {
	if s.Config.Status.KVM == nil {
		return 0
	}
	return s.Config.Status.KVM.NodeIndexes[nodeID]
}

// Masters are the nodes with role master.
func (s *Snapshot) Masters() []Node { return s.role(key.RoleMaster) }

// Workers are the nodes with role worker.
func (s *Snapshot) Workers() []Node { return s.role(key.RoleWorker) }

func (s *Snapshot) role(role string) []Node {
	return slices.DeleteFunc(slices.Clone(s.Nodes), func(n Node) bool { return n.Role != role })
}

// EtcdOnVolume says whether etcd keeps its data in persistent volumes.
func (s *Snapshot) EtcdOnVolume() bool {
	return s.Config.Spec.KVM.K8sKVM.StorageType == v1alpha1.StorageTypePersistentVolume
}

// EtcdOnHost says whether a node is a master whose etcd keeps its data in a directory of its host.
func (s *Snapshot) EtcdOnHost(n Node) bool { return n.Role == key.RoleMaster && !s.EtcdOnVolume() }

// MustWait says whether a node is outdated and may not be replaced now: nothing of it may change until then, or a chance
// restart would apply it.
func (s *Snapshot) MustWait(n Node) bool {
	return n.Deployment != nil && n.Outdated() && !s.Rollout.Replace[n.ID]
}

// KeepsBootData says whether the boot data of a node stays as it is: as long as it is not its turn to be replaced, as it is not known how
// its member of etcd begins, and as the node is there only for etcd to begin at all.
func (s *Snapshot) KeepsBootData(n Node) bool {
	if n.Deployment == nil {
		return false
	}
	// One that is halted gets the right to begin with what a snapshot was put in the place of.
	held := s.Holds(n) && !n.Halted()
	return held || s.MustWait(n) || s.AwaitsMember(n)
}

// Halted says that the machine of a master is down for a restore.
func (n Node) Halted() bool {
	return n.Deployment != nil && n.Deployment.Annotations[key.AnnotationEtcdHalted] != ""
}

// begun says that the machine of a node has been told to run.
func (n Node) begun() bool { return n.Deployment != nil && !n.Halted() }

// Outdated says whether what runs is not what is wanted.
func (n Node) Outdated() bool {
	return n.Deployment != nil && n.Deployment.Spec.Template.Annotations[key.AnnotationNodeHash] != n.Hash
}

// Pod is the pod that counts: the newest that is not going, else the newest; nil when there is none.
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

// Holder is the pod that runs a master's machine, once it has an address: while the old pod ends, its successor waits for the
// disks, so the old one it is as long as it exists.
func (n Node) Holder() *corev1.Pod {
	for i := range slices.Backward(n.Pods) {
		pod := &n.Pods[i]
		if pod.Status.PodIP != "" && alive(*pod) {
			return pod
		}
	}
	return nil
}

// Memory is the guest's memory; a malformed one, which the API server does not let pass, is zero.
func (n Node) Memory() resource.Quantity {
	q, err := resource.ParseQuantity(n.Machine.Memory)
	if err != nil {
		return resource.Quantity{}
	}
	return q
}

// MountTags are the tags of the host volumes, which only workers have.
func (n Node) MountTags() []string {
	var tags []string
	for _, v := range n.HostVolumes() {
		tags = append(tags, v.MountTag)
	}
	return tags
}

// HostVolumes are the host volumes of a worker; those of masters are ignored, as the original did.
func (n Node) HostVolumes() []v1alpha1.HostVolume {
	if n.Role != key.RoleWorker {
		return nil
	}
	return n.Machine.HostVolumes
}

// NewNodes pairs the nodes of the spec with their machines: by id where machines have one, else by position.
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

// WithDefaults returns a copy of the KVMConfig in which every value that is derived from others is filled in.
func WithDefaults(config *v1alpha1.KVMConfig) *v1alpha1.KVMConfig {
	c := config.DeepCopy()
	cluster := &c.Spec.Cluster
	cluster.Kubernetes.DNS.IP = key.DNSServiceIP(*cluster)
	cluster.Etcd.Domain = key.EtcdDomain(*cluster)
	cluster.Kubernetes.Kubelet.Domain = key.WorkerDomain(*cluster)
	cluster.Kubernetes.Kubelet.Labels = strings.TrimSpace(cluster.Kubernetes.Kubelet.Labels)
	return c
}

// Remediation says whether unhealthy nodes are replaced and after how long: the spec decides, else the annotation, else the
// operator's setting.
func (s *Snapshot) Remediation() (enabled bool, after time.Duration) {
	after = remediation.After
	if r := s.Config.Spec.Remediation; r != nil {
		if r.UnhealthyAfter != nil {
			after = r.UnhealthyAfter.Duration
		}
		return r.Enabled, after
	}
	return s.Settings.TerminateUnhealthyNodes || key.TerminatesUnhealthy(s.Config.Annotations), after
}
