package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Phase is the state of a machine that is observed.
//
// +kubebuilder:validation:Enum=Stopped;Starting;Running;Stopping;Failed
type Phase string

const (
	// PhaseStopped means that the machine does not run.
	PhaseStopped Phase = "Stopped"

	// PhaseStarting means that the machine is on its way from a pod to a guest that runs.
	PhaseStarting Phase = "Starting"

	// PhaseRunning means that the guest runs.
	PhaseRunning Phase = "Running"

	// PhaseStopping means that the guest is being shut down.
	PhaseStopping Phase = "Stopping"

	// PhaseFailed means that the machine cannot run as it is declared, or that its host is silent; the condition Ready says
	// which.
	PhaseFailed Phase = "Failed"
)

// VirtualMachineStatus is the observed state.
type VirtualMachineStatus struct {
	// ObservedGeneration is the generation of the spec that the rest of the status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready summarizes the others.
	//
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.lastTransitionTime >= timestamp('0001-01-01T00:00:00Z'))",message="must have times like 2006-01-02T15:04:05Z"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Phase is Stopped, Starting, Running, Stopping or Failed.
	Phase Phase `json:"phase,omitempty"`

	// Node is the node that runs the pod.
	Node string `json:"node,omitempty"`

	// PodIP is the address of the pod.
	PodIP string `json:"podIP,omitempty"`

	// RunnerVersion is the version of the runner; absent while there is no pod.
	RunnerVersion string `json:"runnerVersion,omitempty"`

	// CPUs is how many virtual CPUs the guest has; 0 while the machine is stopped.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	CPUs int32 `json:"cpus"`

	// RAM is how much memory the guest has, as a quantity such as 4Gi; "0" while the machine is stopped.
	//
	// +optional
	RAM string `json:"ram"`

	// Accelerator is what runs the guest's instructions: kvm or tcg.
	Accelerator string `json:"accelerator,omitempty"`

	// MachineType is the machine type of QEMU that the guest has had since its first start.
	MachineType string `json:"machineType,omitempty"`

	// InstanceID is the instance-id that cloud-init gets.
	InstanceID string `json:"instanceID,omitempty"`

	// Disks are the disks of the machine and their claims.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Disks []DiskStatus `json:"disks,omitempty"`

	// ConsoleClient is the host that is connected to the display; empty for none.
	//
	// +optional
	ConsoleClient string `json:"consoleClient"`

	// ConsoleUser is always empty.
	//
	// +optional
	ConsoleUser string `json:"consoleUser"`

	// LoggedInUser is always empty.
	LoggedInUser string `json:"loggedInUser,omitempty"`

	// DisplayPasswordSerial counts how often the password of the display was set; -1 for a display without a password.
	//
	// +optional
	// +kubebuilder:validation:Minimum=-1
	DisplayPasswordSerial int64 `json:"displayPasswordSerial"`

	// OSInfo is what the guest agent says about the operating system; absent while the machine is stopped.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	OSInfo *runtime.RawExtension `json:"osinfo,omitempty"`

	// Assignment is never set: there are no pools.
	Assignment *Assignment `json:"assignment,omitempty"`
}

// DiskStatus is a claim of the machine and the disk that it is.
type DiskStatus struct {
	// Name of the disk.
	Name string `json:"name"`

	// Claim is the PersistentVolumeClaim of the disk.
	Claim string `json:"claim,omitempty"`

	// Device is the path of the disk in the pod.
	Device string `json:"device,omitempty"`

	// Size of the disk that the running guest sees.
	Size string `json:"size,omitempty"`
}

// Assignment is the pool and the user that a machine is assigned to.
type Assignment struct {
	// Pool is the pool.
	Pool string `json:"pool,omitempty"`

	// User is the user.
	User string `json:"user,omitempty"`

	// LastUsed is when the user last used the machine, for example 2006-01-02T15:04:05Z.
	LastUsed string `json:"lastUsed,omitempty"`
}
