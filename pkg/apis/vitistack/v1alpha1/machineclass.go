package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineClass is a size that Machines refer to.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machineclasses,shortName=mc,scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Category",type=string,JSONPath=`.spec.category`
// +kubebuilder:printcolumn:name="Default",type=boolean,JSONPath=`.spec.default`
// +kubebuilder:printcolumn:name="Cores",type=integer,JSONPath=`.spec.cpu.cores`
// +kubebuilder:printcolumn:name="Sockets",type=integer,JSONPath=`.spec.cpu.sockets`
// +kubebuilder:printcolumn:name="Threads",type=integer,JSONPath=`.spec.cpu.threads`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.memory.quantity`
// +kubebuilder:printcolumn:name="Enabled",type=boolean,JSONPath=`.spec.enabled`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MachineClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the size.
	Spec MachineClassSpec `json:"spec,omitempty,omitzero"`

	// Status is written by other operators.
	Status MachineClassStatus `json:"status,omitempty,omitzero"`
}

// MachineClassList is a list of MachineClasses.
//
// +kubebuilder:object:root=true
type MachineClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MachineClass `json:"items"`
}

// MachineClassSpec is a size.
type MachineClassSpec struct {
	// Enabled allows Machines to use the class.
	//
	// +kubebuilder:default=true
	Enabled bool `json:"enabled"`

	// Default has no effect.
	//
	// +kubebuilder:default=false
	Default bool `json:"default"`

	// Category is for users only. Default: Standard.
	//
	// +kubebuilder:default=Standard
	Category string `json:"category,omitempty"`

	// DisplayName is for users only.
	DisplayName string `json:"displayName,omitempty"`

	// Description is for users only.
	Description string `json:"description,omitempty"`

	// CPU is the topology of the processors.
	CPU MachineClassCPU `json:"cpu"`

	// Memory of the guest.
	Memory MachineClassMemory `json:"memory"`

	// MachineProviders have no effect.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MachineProviders []string `json:"machineProviders,omitempty"`

	// GPU has no effect.
	GPU MachineClassGPU `json:"gpu,omitempty,omitzero"`
}

// MachineClassCPU is the topology of the processors.
type MachineClassCPU struct {
	// Cores of a socket, 1 to 256.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	Cores int32 `json:"cores"`

	// Sockets, 0 to 16. 0 means 1.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	Sockets int32 `json:"sockets,omitempty"`

	// Threads of a core, 0 to 8. 0 means 1.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=8
	Threads int32 `json:"threads,omitempty"`
}

// MachineClassMemory is the memory of the guest.
type MachineClassMemory struct {
	// Quantity of memory, more than zero.
	Quantity Quantity `json:"quantity"`

	// MinQuantity has no effect.
	MinQuantity Quantity `json:"minQuantity,omitempty"`

	// MaxQuantity has no effect.
	MaxQuantity Quantity `json:"maxQuantity,omitempty"`
}

// MachineClassGPU has no effect.
type MachineClassGPU struct {
	// Cores have no effect.
	//
	// +kubebuilder:validation:Minimum=0
	Cores int32 `json:"cores,omitempty"`

	// Manufacturer has no effect.
	Manufacturer string `json:"manufacturer,omitempty"`
}

// MachineClassStatus is written by other operators.
type MachineClassStatus struct {
	// Phase is written by other operators.
	Phase string `json:"phase,omitempty"`

	// Status is written by other operators.
	Status string `json:"status,omitempty"`

	// Message is written by other operators.
	Message string `json:"message,omitempty"`
}
