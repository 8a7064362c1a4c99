package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SmolVMNode is what the runtime of a node reports. It has the name and the labels of the Node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=smolvmnodes,singular=smolvmnode,scope=Cluster
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the runtime works"
// +kubebuilder:printcolumn:name="Runtime",type=string,JSONPath=`.status.runtimeVersion`,description="Version of the runtime"
// +kubebuilder:printcolumn:name="Heartbeat",type=date,JSONPath=`.status.heartbeatTime`,description="Last report"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Accelerator",type=string,JSONPath=`.status.accelerator`,priority=1,description="What runs the instructions of guests"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1,description="What the runtime lacks"
type SmolVMNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status SmolVMNodeStatus `json:"status,omitempty"`
}

// SmolVMNodeList is a list of SmolVMNodes.
//
// +kubebuilder:object:root=true
type SmolVMNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SmolVMNode `json:"items"`
}

// SmolVMNodeStatus is what the runtime of a node reports.
type SmolVMNodeStatus struct {
	// NodeUID is the UID of the Node that the runtime is on.
	NodeUID types.UID `json:"nodeUID,omitempty"`

	// RuntimeVersion is the version of the runtime.
	RuntimeVersion string `json:"runtimeVersion,omitempty"`

	// ProtocolVersion is v1alpha1.
	ProtocolVersion string `json:"protocolVersion,omitempty"`

	// Backend is what runs the machines: smolvm or qemu. An addition.
	Backend string `json:"backend,omitempty"`

	// Accelerator is what runs the instructions of guests: kvm, or tcg if there is no KVM and the runtime may emulate;
	// absent if the runtime can run no machine. An addition.
	Accelerator Accelerator `json:"accelerator,omitempty"`

	// Features are what the runtime can do beyond the protocol, for example survives-restart. An addition.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	Features []string `json:"features,omitempty"`

	// HeartbeatTime is when the runtime last reported. A runtime that has not reported for two minutes gets no machine.
	//
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time like 2006-01-02T15:04:05Z"
	HeartbeatTime *metav1.Time `json:"heartbeatTime,omitempty"`

	// Endpoint is where the runtime accepts requests.
	Endpoint Endpoint `json:"endpoint,omitempty,omitzero"`

	// Allocatable are the resources of the node that machines may use.
	Allocatable Allocatable `json:"allocatable,omitempty,omitzero"`

	// Conditions: Ready, KVMAvailable, RuntimeReady and Schedulable.
	//
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime >= timestamp('0001-01-01T00:00:00Z'))",message="must have times like 2006-01-02T15:04:05Z"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Endpoint is where the runtime of a node accepts requests, by HTTPS.
type Endpoint struct {
	// PodName is the name of the runtime's pod.
	PodName string `json:"podName,omitempty"`

	// PodNamespace is the namespace of that pod.
	PodNamespace string `json:"podNamespace,omitempty"`

	// PodIP is the address of that pod.
	PodIP string `json:"podIP,omitempty"`

	// Port is the port of the runtime.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// Certificate is the runtime's, in PEM; the controller trusts no other. An addition.
	//
	// +kubebuilder:validation:MaxLength=65536
	Certificate string `json:"certificate,omitempty"`
}

// Allocatable are the resources of a node that machines may use. A value of 0 means no limit.
type Allocatable struct {
	// CPUs is the number of processors.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	CPUs int32 `json:"cpus,omitempty"`

	// MemoryMiB is the memory in MiB.
	//
	// +kubebuilder:validation:Minimum=0
	MemoryMiB int64 `json:"memoryMiB,omitempty"`

	// StorageGiB is the storage for disks in GiB: the free space, and the space that machines and images occupy.
	//
	// +kubebuilder:validation:Minimum=0
	StorageGiB int64 `json:"storageGiB,omitempty"`
}
