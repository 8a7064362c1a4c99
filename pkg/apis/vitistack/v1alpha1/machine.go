package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Machine is a virtual machine that KubeVirt runs.
//
// The rules about its name hold for what is new only: a Machine that an older CRD has stored could not lose its finalizers
// otherwise.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machines,shortName=m,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Template",type=string,JSONPath=`.spec.template`
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.status.ipAddresses[0]`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="State",type=string,priority=1,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Machine Class",type=string,priority=1,JSONPath=`.spec.machineClass`
// +kubebuilder:printcolumn:name="Provider",type=string,priority=1,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="VM",type=string,priority=1,JSONPath=`.status.vmName`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",optionalOldSelf=true,message="metadata.name must be at most 63 characters and have no dot, because it is the host name of the guest"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.spec) || !has(self.spec.disks) || self.spec.disks.all(d, size(self.metadata.name) + size(d.name) <= 62)",optionalOldSelf=true,message="metadata.name, '-' and the name of a disk must be at most 63 characters together, because that is the name of the disk's claim"
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.disks) || self.spec.disks.all(d, size(self.metadata.name) + size(d.name) <= 62 || has(oldSelf.spec) && has(oldSelf.spec.disks) && oldSelf.spec.disks.exists(o, o.name == d.name))",message="metadata.name, '-' and the name of a disk must be at most 63 characters together, because that is the name of the disk's claim"
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state.
	Spec MachineSpec `json:"spec,omitempty,omitzero"`

	// Status is what the operator reports.
	Status MachineStatus `json:"status,omitempty,omitzero"`
}

// MachineList is a list of Machines.
//
// +kubebuilder:object:root=true
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Machine `json:"items"`
}

// MachineSpec is the desired state.
//
// +kubebuilder:validation:XValidation:rule="!has(self.template) || self.template == \"\" || !has(self.machineClass) || self.machineClass == \"\"",message="template and machineClass are two names for a size; remove one"
type MachineSpec struct {
	// Template is the size: small, medium, large, or one of the operator's configuration. Default: the label
	// vitistack.io/machine-template, else machineClass, else resources.
	//
	// +kubebuilder:validation:MaxLength=63
	Template string `json:"template,omitempty"`

	// Resources replace single values of the template.
	Resources Resources `json:"resources,omitempty,omitzero"`

	// Disks are added to those of the template, and change those of the same name.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Disks []Disk `json:"disks,omitempty"`

	// Networks are the network interfaces. Default: one on the network of pods.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Networks []Network `json:"networks,omitempty"`

	// BootOrder are the devices that the firmware tries, in this order. Default: disk.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=disk;network;cdrom
	BootOrder []string `json:"bootOrder,omitempty"`

	// CloudInit is what the guest is configured with at its first boot.
	CloudInit *CloudInit `json:"cloudInit,omitempty"`

	// Domain are settings of the virtual hardware.
	Domain Domain `json:"domain,omitempty,omitzero"`

	// Provider is the system that runs the machine. This operator handles kubevirt and the empty value and ignores other
	// Machines.
	//
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider,omitempty"`

	// MachineClass is the MachineClass that has the size. Deprecated: use template.
	//
	// +kubebuilder:validation:MaxLength=253
	MachineClass string `json:"machineClass,omitempty"`

	// CPU replaces single values of the class. Deprecated: use resources.cpu.
	CPU ClassicCPU `json:"cpu,omitempty,omitzero"`

	// Memory in bytes replaces that of the class. Deprecated: use resources.memory.size.
	//
	// +kubebuilder:validation:Minimum=0
	Memory int64 `json:"memory,omitempty"`

	// Name has no effect.
	//
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// MachineType has no effect.
	//
	// +kubebuilder:validation:MaxLength=253
	MachineType string `json:"machineType,omitempty"`

	// Network has no effect: this operator has no NetworkNamespaces. Use networks.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	Network *runtime.RawExtension `json:"network,omitempty"`

	// OS has no effect. Use disks[].source.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	OS *runtime.RawExtension `json:"os,omitempty"`

	// ProviderConfig has no effect.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	ProviderConfig *runtime.RawExtension `json:"providerConfig,omitempty"`

	// SSHKeys have no effect. Use cloudInit.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	SSHKeys []string `json:"sshKeys,omitempty"`

	// UserData has no effect. Use cloudInit.userData.
	UserData string `json:"userData,omitempty"`

	// Tags have no effect.
	//
	// +kubebuilder:validation:MaxProperties=256
	Tags map[string]string `json:"tags,omitempty"`

	// SecurityGroups have no effect.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	SecurityGroups []string `json:"securityGroups,omitempty"`

	// Monitoring has no effect.
	Monitoring bool `json:"monitoring,omitempty"`

	// Backup has no effect.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	Backup *runtime.RawExtension `json:"backup,omitempty"`
}

// Resources are the processors and the memory of a machine.
type Resources struct {
	// CPU is the topology of the processors.
	CPU CPU `json:"cpu,omitempty,omitzero"`

	// Memory of the guest.
	Memory Memory `json:"memory,omitempty,omitzero"`
}

// CPU is the topology of the processors. The guest sees cores × threads × sockets processors.
type CPU struct {
	// Cores of a socket, 1 to 256. Default: the template's.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	Cores int32 `json:"cores,omitempty"`

	// Threads of a core, 1 to 8. Default: the template's.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Threads int32 `json:"threads,omitempty"`

	// Sockets, 1 to 16. Default: the template's.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Sockets int32 `json:"sockets,omitempty"`
}

// Memory of a guest.
type Memory struct {
	// Size as a quantity, more than zero, for example 8Gi. Default: the template's.
	Size Quantity `json:"size,omitempty"`
}

// ClassicCPU is the topology of the processors in fields of vitistack/common.
type ClassicCPU struct {
	// Cores of a socket, 1 to 256. Deprecated: use resources.cpu.cores.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	Cores int32 `json:"cores,omitempty"`

	// ThreadsPerCore, 1 to 8. Deprecated: use resources.cpu.threads.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	ThreadsPerCore int32 `json:"threadsPerCore,omitempty"`

	// Sockets, 1 to 16. Deprecated: use resources.cpu.sockets.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Sockets int32 `json:"sockets,omitempty"`
}

// Domain are settings of the virtual hardware. KubeVirt decides what is not set.
type Domain struct {
	// Machine is the machine type.
	Machine MachineType `json:"machine,omitempty,omitzero"`

	// Features of the hardware.
	Features Features `json:"features,omitempty,omitzero"`

	// Firmware of the machine.
	Firmware Firmware `json:"firmware,omitempty,omitzero"`
}

// MachineType is the machine type of QEMU.
type MachineType struct {
	// Type is q35, pc-q35 (the same), or a version such as pc-q35-rhel9.4.0. KubeVirt allows others, such as pc-i440fx, only
	// where its configuration lists them in emulatedMachines.
	//
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type,omitempty"`
}

// Features of the hardware.
type Features struct {
	// ACPI of the machine. Default: decided by KubeVirt, which turns it on.
	ACPI *bool `json:"acpi,omitempty"`

	// APIC of the machine. Default: decided by KubeVirt.
	APIC *bool `json:"apic,omitempty"`

	// HyperV turns on what guests with Windows need to be fast.
	HyperV bool `json:"hyperv,omitempty"`
}

// Firmware of a machine.
type Firmware struct {
	// Bootloader is the program that starts the guest.
	Bootloader *Bootloader `json:"bootloader,omitempty"`
}

// Bootloader is the program that starts the guest.
//
// +kubebuilder:validation:XValidation:rule="!has(self.secureBoot) || !self.secureBoot || has(self.efi) && self.efi",message="secureBoot needs efi: true; set it, or remove secureBoot"
type Bootloader struct {
	// EFI is UEFI where true, BIOS where false.
	EFI *bool `json:"efi,omitempty"`

	// SecureBoot starts only what is signed. It needs efi: true.
	SecureBoot bool `json:"secureBoot,omitempty"`
}
