package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Phase is the state of a SmolVM that is observed.
//
// +kubebuilder:validation:Enum=Pending;Scheduled;Created;Running;Stopped;Unknown;Failed;Deleting
type Phase string

const (
	// PhasePending means that no node suits.
	PhasePending Phase = "Pending"
	// PhaseScheduled means that the machine has a node, whose runtime has not been asked yet.
	PhaseScheduled Phase = "Scheduled"
	// PhaseCreated means that the machine has never been started.
	PhaseCreated Phase = "Created"
	// PhaseRunning means that the machine runs.
	PhaseRunning Phase = "Running"
	// PhaseStopped means that the machine does not run.
	PhaseStopped Phase = "Stopped"
	// PhaseUnknown means that the machine is in another state, or that the runtime cannot be asked.
	PhaseUnknown Phase = "Unknown"
	// PhaseFailed means that the spec cannot be followed as it is.
	PhaseFailed Phase = "Failed"
	// PhaseDeleting means that a deletion waits for the runtime.
	PhaseDeleting Phase = "Deleting"
)

// Accelerator is what runs the instructions of guests.
//
// +kubebuilder:validation:Enum=kvm;tcg
type Accelerator string

const (
	// AcceleratorKVM is KVM.
	AcceleratorKVM Accelerator = "kvm"
	// AcceleratorTCG is software emulation.
	AcceleratorTCG Accelerator = "tcg"
)

// SmolVMStatus is the observed state.
type SmolVMStatus struct {
	// Phase is Pending, Scheduled, Created, Running, Stopped, Unknown, Failed or Deleting.
	Phase Phase `json:"phase,omitempty"`

	// NodeName is the node that has the machine. Once set it never changes.
	NodeName string `json:"nodeName,omitempty"`

	// NodeUID is the UID of that node: another node of the same name does not have the machine's disks. An addition.
	NodeUID types.UID `json:"nodeUID,omitempty"`

	// MachineName is the name of the machine on its node.
	MachineName string `json:"machineName,omitempty"`

	// RuntimePID is the process id of the machine, as the runtime reports it; absent while the machine is stopped.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	RuntimePID *int32 `json:"runtimePID,omitempty"`

	// Network is whether the machine may reach others.
	Network bool `json:"network,omitempty"`

	// Ports are those of the node that lead to the machine.
	//
	// +listType=atomic
	Ports []Port `json:"ports,omitempty"`

	// StorageGiB is the size of the disk for data; absent if the runtime does not report it.
	StorageGiB *int64 `json:"storageGiB,omitempty"`

	// OverlayGiB is the size of the disk for changes to the image; absent if the runtime does not report it.
	OverlayGiB *int64 `json:"overlayGiB,omitempty"`

	// ImageDigest is the digest of the image at the first start; later starts use the same digest. An addition.
	ImageDigest string `json:"imageDigest,omitempty"`

	// StartTime is when the machine was started the last time. An addition.
	//
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time like 2006-01-02T15:04:05Z"
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// ExitCode is that of the image's process, once it has ended. An addition.
	//
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	ExitCode *int32 `json:"exitCode,omitempty"`

	// Accelerator is what runs the guest's instructions: kvm or tcg. An addition.
	Accelerator Accelerator `json:"accelerator,omitempty"`

	// ObservedGeneration is the generation of the spec that the rest of the status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Scheduled, Ready, RuntimeReady, GuestReady, Reconciled, DeletionBlocked and LocalStateLost.
	//
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime >= timestamp('0001-01-01T00:00:00Z'))",message="must have times like 2006-01-02T15:04:05Z"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
