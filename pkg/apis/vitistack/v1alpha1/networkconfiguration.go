package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NetworkConfiguration is a network that Machines of its namespace attach to.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=networkconfigurations,shortName=nc,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Bridge",type=string,JSONPath=`.spec.bridge`
// +kubebuilder:printcolumn:name="VLAN",type=integer,JSONPath=`.spec.vlan`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Name",type=string,priority=1,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name="Phase",type=string,priority=1,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Status",type=string,priority=1,JSONPath=`.status.status`
type NetworkConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state.
	Spec NetworkConfigurationSpec `json:"spec,omitempty,omitzero"`

	// Status is what the operators report.
	Status NetworkConfigurationStatus `json:"status,omitempty,omitzero"`
}

// NetworkConfigurationList is a list of NetworkConfigurations.
//
// +kubebuilder:object:root=true
type NetworkConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NetworkConfiguration `json:"items"`
}

// NetworkConfigurationSpec is the desired state. With a bridge or a VLAN the network is a bridge of the nodes;
// without them it is the network of pods.
type NetworkConfigurationSpec struct {
	// VLAN of the network on the bridge, 0 to 4094. 0: untagged.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4094
	VLAN int32 `json:"vlan,omitempty"`

	// Bridge is the bridge of the nodes. Default: br0, where a VLAN is set.
	//
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self == \"\" || self.matches('^[A-Za-z0-9_.-]+$') && !(self in ['.', '..'])",message="must be the name of an interface: letters, digits, '_', '.' and '-'"
	Bridge string `json:"bridge,omitempty"`

	// Name has no effect.
	//
	// +kubebuilder:validation:MaxLength=32
	Name string `json:"name,omitempty"`

	// NetworkNamespaceName has no effect.
	//
	// +kubebuilder:validation:MaxLength=253
	NetworkNamespaceName string `json:"networkNamespaceName,omitempty"`

	// Description is for users only.
	//
	// +kubebuilder:validation:MaxLength=256
	Description string `json:"description,omitempty"`

	// DatacenterIdentifier has no effect.
	//
	// +kubebuilder:validation:MaxLength=32
	DatacenterIdentifier string `json:"datacenterIdentifier,omitempty"`

	// SupervisorIdentifier has no effect.
	//
	// +kubebuilder:validation:MaxLength=32
	SupervisorIdentifier string `json:"supervisorIdentifier,omitempty"`

	// ClusterIdentifier has no effect.
	//
	// +kubebuilder:validation:MaxLength=32
	ClusterIdentifier string `json:"clusterIdentifier,omitempty"`

	// Provider is the operator that assigns addresses. This operator does not read it.
	//
	// +kubebuilder:validation:MaxLength=32
	Provider string `json:"provider,omitempty"`

	// NetworkInterfaces are for operators that assign addresses. This operator does not read them.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	NetworkInterfaces []AssignedInterface `json:"networkInterfaces,omitempty"`
}

// AssignedInterface is an interface with the addresses that an operator assigns to it.
type AssignedInterface struct {
	// Name of the interface.
	Name string `json:"name,omitempty"`

	// MACAddress of the interface.
	MACAddress string `json:"macAddress,omitempty"`

	// IPv4Addresses of the interface.
	//
	// +listType=atomic
	IPv4Addresses []string `json:"ipv4Addresses,omitempty"`

	// IPv6Addresses of the interface.
	//
	// +listType=atomic
	IPv6Addresses []string `json:"ipv6Addresses,omitempty"`

	// VLAN of the interface.
	VLAN string `json:"vlan,omitempty"`

	// IPv4Subnet of the interface.
	IPv4Subnet string `json:"ipv4Subnet,omitempty"`

	// IPv6Subnet of the interface.
	IPv6Subnet string `json:"ipv6Subnet,omitempty"`

	// IPv4Gateway of the interface.
	IPv4Gateway string `json:"ipv4Gateway,omitempty"`

	// IPv6Gateway of the interface.
	IPv6Gateway string `json:"ipv6Gateway,omitempty"`

	// DNS servers of the interface.
	//
	// +listType=atomic
	DNS []string `json:"dns,omitempty"`

	// DHCPReserved says whether the address is reserved.
	DHCPReserved bool `json:"dhcpReserved,omitempty"`

	// IPAllocated says whether the address is assigned.
	IPAllocated bool `json:"ipAllocated,omitempty"`

	// AllocationMethod is dhcp or static.
	//
	// +kubebuilder:validation:Enum=dhcp;static
	AllocationMethod string `json:"allocationMethod,omitempty"`

	// AllocationExpiry is when the assignment ends.
	AllocationExpiry *metav1.Time `json:"allocationExpiry,omitempty"`
}

// NetworkConfigurationStatus is what the operators report.
type NetworkConfigurationStatus struct {
	// Conditions are Ready and NADReady, and those of other operators.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Attachments are the interfaces of Machines on the network.
	//
	// +listType=map
	// +listMapKey=machine
	// +listMapKey=interface
	Attachments []Attachment `json:"attachments,omitempty"`

	// NetworkInterfaces are written by an operator that assigns addresses.
	//
	// +listType=atomic
	NetworkInterfaces []AssignedInterface `json:"networkInterfaces,omitempty"`

	// Phase is written by other operators.
	Phase string `json:"phase,omitempty"`

	// Status is written by other operators.
	Status string `json:"status,omitempty"`

	// Message is written by other operators.
	Message string `json:"message,omitempty"`

	// Created is written by other operators.
	Created *metav1.Time `json:"created,omitempty"`
}

// Attachment is an interface of a Machine on the network.
type Attachment struct {
	// Machine of the namespace.
	Machine string `json:"machine"`

	// Interface of the Machine.
	Interface string `json:"interface"`

	// MACAddress of the interface.
	MACAddress string `json:"macAddress,omitempty"`

	// IPAddresses of the interface.
	//
	// +listType=atomic
	IPAddresses []string `json:"ipAddresses,omitempty"`

	// NodeName is the node that the Machine runs on.
	NodeName string `json:"nodeName,omitempty"`
}
