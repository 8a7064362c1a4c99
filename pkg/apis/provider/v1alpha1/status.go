package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KVMConfigStatus is the observed state.
type KVMConfigStatus struct {
	// ObservedGeneration is the generation of the spec that the rest of the status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready summarizes the others. Each area of the cluster has one condition, see docs/kvmconfig.md.
	//
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime >= timestamp('0001-01-01T00:00:00Z'))",message="must have times like 2006-01-02T15:04:05Z"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Nodes is the state of every node, masters first. A worker may have the id of a master that is being removed.
	//
	// +listType=map
	// +listMapKey=id
	// +listMapKey=role
	Nodes []NodeStatus `json:"nodes,omitempty"`

	// Retired is the etcd data of former masters on hosts. Once the member of such a master is removed, the operator renames
	// the directory, so that no machine starts with that data again, and removes it later (service.etcd.retention).
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Retired []RetiredData `json:"retired,omitempty"`

	// MinoritySince is since when no majority of the masters is Ready. After twenty minutes, a rollout replaces all masters
	// that are not Ready at the same time, because they may need each other.
	//
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time like 2006-01-02T15:04:05Z"
	MinoritySince *metav1.Time `json:"minoritySince,omitempty"`

	// Etcd is how the cluster's etcd was founded. Annotations of the cluster's namespace have the same, but the namespace may
	// be deleted.
	Etcd *EtcdStatus `json:"etcd,omitempty"`

	// Versions are the component versions in force.
	Versions *Versions `json:"versions,omitempty"`

	// Cluster is filled for clients of the original API.
	Cluster *LegacyClusterStatus `json:"cluster,omitempty"`

	// KVM is filled for clients of the original API.
	KVM *LegacyKVMStatus `json:"kvm,omitempty"`
}

// NodeStatus is the state of one node.
type NodeStatus struct {
	// ID of the node.
	ID string `json:"id"`

	// Role is master or worker.
	Role string `json:"role"`

	// Pod is the name of the node pod, which is the name of the workload cluster's Node.
	Pod string `json:"pod,omitempty"`

	// IP is the address of the node pod and of the guest.
	IP string `json:"ip,omitempty"`

	// Host is the node of the management cluster that runs the node pod.
	Host string `json:"host,omitempty"`

	// EtcdHost is the host with the etcd data of this master, if storageType is hostPath. The master runs only there. If the
	// host and its data are lost permanently, replace the master by one with another id.
	EtcdHost string `json:"etcdHost,omitempty"`
	// EtcdMark is the name of the directory with the data on that host, which no other cluster can know:
	// /home/core/volumes/<cluster id>/<mark>/k8s-master-<id>. Clusters that started with a version without marks have none,
	// and their data is in /home/core/volumes/<cluster id>/k8s-master-<id>.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{16}$`
	EtcdMark string `json:"etcdMark,omitempty"`
	// EtcdClaim is the PersistentVolumeClaim with the etcd data of this master, if storageType is persistentVolume. It is set
	// once the master has had a machine, so that its etcd is not founded again.
	EtcdClaim string `json:"etcdClaim,omitempty"`

	// EtcdMember is the number of the etcd member on this master, once the member has run. After a restore, "@" and the
	// founding token follow. From then on, the master does not start with an empty disk.
	EtcdMember string `json:"etcdMember,omitempty"`

	// Phase is Pending, Starting, Ready, Outdated or Terminating.
	Phase string `json:"phase"`

	// Step is the step that the node has reached between a pod and a Ready Node.
	Step string `json:"step,omitempty"`

	// Since is when the node reached its step.
	//
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time like 2006-01-02T15:04:05Z"
	Since *metav1.Time `json:"since,omitempty"`

	// Message says what the node waits for.
	Message string `json:"message,omitempty"`

	// Console is the end of the machine's console, once the node has been at its step for too long.
	Console string `json:"console,omitempty"`
}

// RetiredData is a directory of a host with the etcd data of a master that was removed from the spec.
type RetiredData struct {
	// ID of the master.
	//
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ID string `json:"id"`

	// EtcdHost is the former status.nodes[].etcdHost: the host with the directory.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	EtcdHost string `json:"etcdHost"`
	// EtcdMark is the former status.nodes[].etcdMark.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{16}$`
	EtcdMark string `json:"etcdMark,omitempty"`
	// EtcdMember is the former status.nodes[].etcdMember.
	EtcdMember string `json:"etcdMember,omitempty"`

	// Phase is Left while the member of the master may be in etcd, or its machine may run. A master of that id then gets the
	// data again. It is Renaming afterwards, and Kept once the directory has the name retired-<since>-k8s-master-<id>.
	//
	// +kubebuilder:validation:Enum=Left;Renaming;Kept
	Phase string `json:"phase"`

	// Since is when the master was no longer in the spec and its machine no longer had to stay.
	//
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time like 2006-01-02T15:04:05Z"
	Since metav1.Time `json:"since"`

	// Message says what the data waits for.
	Message string `json:"message,omitempty"`
}

// EtcdStatus is how an etcd was founded.
type EtcdStatus struct {
	// Founders are the ids of the founding members' masters.
	//
	// +listType=atomic
	Founders []string `json:"founders,omitempty"`

	// Restored is the snapshot that etcd started with, as "<file>/<generation>", followed by "#" and the number of restores
	// before it. It is empty if etcd started without data.
	Restored string `json:"restored,omitempty"`

	// Ticket is the founding token with which masters received the data of that snapshot.
	Ticket string `json:"ticket,omitempty"`
}

// LegacyClusterStatus is the status block of the original API.
type LegacyClusterStatus struct {
	// Conditions are Creating, Created, Updating, Updated and Deleting, the newest first.
	// +nullable
	Conditions []LegacyCondition `json:"conditions,omitempty"`

	// Network is never written.
	Network LegacyNetwork `json:"network,omitzero"`

	// Nodes are the workload cluster's Nodes.
	// +nullable
	Nodes []LegacyNode `json:"nodes,omitempty"`

	// Resources is never written.
	// +nullable
	Resources []LegacyResource `json:"resources,omitempty"`

	// Scaling is never written by this operator.
	Scaling LegacyScaling `json:"scaling,omitzero"`

	// Versions are the last five operator versions that the cluster reached.
	// +nullable
	Versions []LegacyVersion `json:"versions,omitempty"`
}

// LegacyCondition is a condition of the original API; its status is always "True".
type LegacyCondition struct {
	// LastTransitionTime is when the condition was set.
	//
	// +nullable
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time like 2006-01-02T15:04:05Z"
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`

	// Status is always "True".
	Status string `json:"status"`

	// Type is Creating, Created, Updating, Updated or Deleting.
	Type string `json:"type"`
}

// LegacyNetwork is never written.
type LegacyNetwork struct {
	// CIDR is never written.
	CIDR string `json:"cidr,omitempty"`
}

// LegacyNode is a Node of the workload cluster.
type LegacyNode struct {
	// Labels of the Node.
	Labels map[string]string `json:"labels,omitempty"`

	// LastTransitionTime is when the entry changed.
	//
	// +nullable
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time like 2006-01-02T15:04:05Z"
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`

	// Name of the Node.
	Name string `json:"name"`

	// Version is the operator version that created the Node.
	//
	// +optional
	Version string `json:"version"`
}

// LegacyResource is never written.
type LegacyResource struct {
	// Conditions is never written.
	// +nullable
	Conditions []LegacyCondition `json:"conditions,omitempty"`

	// Name is never written.
	Name string `json:"name"`
}

// LegacyScaling is written by other operators.
type LegacyScaling struct {
	// DesiredCapacity is written by other operators.
	//
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	DesiredCapacity int32 `json:"desiredCapacity,omitempty"`
}

// LegacyVersion is an operator version that the cluster reached.
type LegacyVersion struct {
	// Date is accepted for old objects.
	//
	// +nullable
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time like 2006-01-02T15:04:05Z"
	Date metav1.Time `json:"date,omitempty"`

	// LastTransitionTime is when the version was reached.
	//
	// +nullable
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time like 2006-01-02T15:04:05Z"
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`

	// Semver is the version.
	Semver string `json:"semver"`
}

// LegacyKVMStatus is the status block of the original API.
type LegacyKVMStatus struct {
	// NodeIndexes maps the id of each node to its index, 1 or greater, unique in the cluster.
	//
	// +nullable
	// +kubebuilder:validation:MaxProperties=4096
	// +kubebuilder:validation:XValidation:rule="self.all(id, self[id] >= -2147483648 && self[id] <= 2147483647)",message="must be numbers of 32 bits"
	NodeIndexes map[string]int32 `json:"nodeIndexes,omitempty"`
}
