package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MachineStatus is what the operator reports.
type MachineStatus struct {
	// Phase is Pending, Creating, Running, Stopped or Failed.
	Phase string `json:"phase,omitempty"`

	// Conditions are Ready, VirtualMachineReady, StorageReady and NetworkReady, and AwaitingRestart while one is needed.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ObservedGeneration is the generation of the spec that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// VMName is the VirtualMachine. Empty before it is created.
	VMName string `json:"vmName,omitempty"`

	// VMIName is the VirtualMachineInstance. Empty while there is none.
	VMIName string `json:"vmiName,omitempty"`

	// NodeName is the node that the guest runs on. Empty while it does not run.
	NodeName string `json:"nodeName,omitempty"`

	// IPAddresses of the guest, those of the first interface first.
	//
	// +listType=atomic
	IPAddresses []string `json:"ipAddresses,omitempty"`

	// IPv6Addresses are those of ipAddresses that are IPv6.
	//
	// +listType=atomic
	IPv6Addresses []string `json:"ipv6Addresses,omitempty"`

	// PublicIPAddresses are those of interfaces with a name. Deprecated: use ipAddresses.
	//
	// +listType=atomic
	PublicIPAddresses []string `json:"publicIPAddresses,omitempty"`

	// PrivateIPAddresses are those of interfaces without a name. Deprecated: use ipAddresses.
	//
	// +listType=atomic
	PrivateIPAddresses []string `json:"privateIPAddresses,omitempty"`

	// LastUpdated is when the status last changed in another field than resourceVersion.
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`

	// ResourceVersion is that of the Machine which the last change of the status was computed from.
	ResourceVersion string `json:"resourceVersion,omitempty"`

	// State is KubeVirt's own word for the state of the VirtualMachine.
	State string `json:"state,omitempty"`

	// Provider is kubevirt.
	Provider string `json:"provider,omitempty"`

	// FailureReason is the error type. Empty while there is none.
	FailureReason string `json:"failureReason,omitempty"`

	// FailureMessage explains failureReason, in 500 characters at most.
	FailureMessage string `json:"failureMessage,omitempty"`

	// NetworkInterfaces are the interfaces that KubeVirt reports.
	//
	// +listType=atomic
	NetworkInterfaces []NetworkInterfaceStatus `json:"networkInterfaces,omitempty"`

	// Disks are the disks with a claim that KubeVirt reports.
	//
	// +listType=atomic
	Disks []DiskStatus `json:"disks,omitempty"`

	// Hostname is that which the guest reports.
	Hostname string `json:"hostname,omitempty"`

	// OperatingSystem is that which the guest reports.
	OperatingSystem string `json:"operatingSystem,omitempty"`

	// OperatingSystemVersion is that which the guest reports.
	OperatingSystemVersion string `json:"operatingSystemVersion,omitempty"`

	// KernelVersion is that which the guest reports.
	KernelVersion string `json:"kernelVersion,omitempty"`
}

// NetworkInterfaceStatus is an interface that KubeVirt reports.
type NetworkInterfaceStatus struct {
	// Name of the interface. Empty: the guest has it, and the Machine does not name it.
	Name string `json:"name,omitempty"`

	// MACAddress of the interface.
	MACAddress string `json:"macAddress,omitempty"`

	// IPAddresses of the interface.
	//
	// +listType=atomic
	IPAddresses []string `json:"ipAddresses,omitempty"`

	// IPv6Addresses are those of ipAddresses that are IPv6.
	//
	// +listType=atomic
	IPv6Addresses []string `json:"ipv6Addresses,omitempty"`

	// State of the link: up or down.
	State string `json:"state,omitempty"`

	// Type is where KubeVirt has this from, for example guest-agent.
	Type string `json:"type,omitempty"`
}

// DiskStatus is a disk with a claim that KubeVirt reports.
type DiskStatus struct {
	// Name of the disk.
	Name string `json:"name,omitempty"`

	// Size of the claim in bytes.
	Size int64 `json:"size,omitempty"`

	// Device of the guest, for example /dev/vda. Guests may name it otherwise.
	Device string `json:"device,omitempty"`

	// PVCName is the claim.
	PVCName string `json:"pvcName,omitempty"`

	// VolumeMode of the claim.
	VolumeMode string `json:"volumeMode,omitempty"`

	// AccessModes of the claim.
	//
	// +listType=atomic
	AccessModes []string `json:"accessModes,omitempty"`
}
