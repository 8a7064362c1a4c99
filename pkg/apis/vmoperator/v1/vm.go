package v1

// State is the state of a machine that a user wants.
//
// +kubebuilder:validation:Enum=Stopped;Running
type State string

const (
	// StateStopped means that the machine does not run. A machine that runs is shut down.
	StateStopped State = "Stopped"

	// StateRunning means that the machine runs.
	StateRunning State = "Running"
)

// Firmware is what starts the guest's boot loader.
//
// +kubebuilder:validation:Enum=bios;uefi;uefi-4m;secure;secure-4m
type Firmware string

const (
	// FirmwareBIOS is a BIOS.
	FirmwareBIOS Firmware = "bios"

	// FirmwareUEFI is UEFI, in an image of 4 MiB where there is no smaller one.
	FirmwareUEFI Firmware = "uefi"

	// FirmwareUEFI4M is UEFI in an image of 4 MiB.
	FirmwareUEFI4M Firmware = "uefi-4m"

	// FirmwareSecure is UEFI with Secure Boot, in an image of 4 MiB where there is no smaller one.
	FirmwareSecure Firmware = "secure"

	// FirmwareSecure4M is UEFI with Secure Boot in an image of 4 MiB.
	FirmwareSecure4M Firmware = "secure-4m"
)

// Acceleration is how QEMU runs the guest's instructions.
//
// +kubebuilder:validation:Enum=auto;kvm;tcg
type Acceleration string

const (
	// AccelerationAuto uses KVM where it works, else software emulation.
	AccelerationAuto Acceleration = "auto"

	// AccelerationKVM uses KVM or fails.
	AccelerationKVM Acceleration = "kvm"

	// AccelerationTCG uses software emulation.
	AccelerationTCG Acceleration = "tcg"
)

// VM is a virtual machine.
//
// +kubebuilder:validation:XValidation:rule="has(self.maximumCpus) != has(self.cpuTopology)",message="must have exactly one of maximumCpus and cpuTopology; write maximumCpus: 4, for example"
// +kubebuilder:validation:XValidation:rule="!has(self.currentCpus) || has(self.maximumCpus) == has(self.cpuTopology) || self.currentCpus <= (has(self.maximumCpus) ? self.maximumCpus : [1, self.cpuTopology.sockets].max() * [1, self.cpuTopology.diesPerSocket].max() * [1, self.cpuTopology.coresPerDie].max() * [1, self.cpuTopology.threadsPerCore].max())",fieldPath=".currentCpus",message="must not be more than maximumCpus, or the product of cpuTopology; lower it, or raise the maximum"
// +kubebuilder:validation:XValidation:rule="!has(self.currentRam) || !self.currentRam.matches('^[0-9]{1,18}([.][0-9]{1,9})?(k|Ki|[MGTPE]i?|[eE][0-9]{1,2})?$') || !self.maximumRam.matches('^[0-9]{1,18}([.][0-9]{1,9})?(k|Ki|[MGTPE]i?|[eE][0-9]{1,2})?$') || quantity(self.currentRam).compareTo(quantity(self.maximumRam)) <= 0",fieldPath=".currentRam",message="must not be more than maximumRam, which is 1G when left out; lower it, or raise maximumRam"
type VM struct {
	// State is the desired state: Stopped or Running. Default Stopped. Takes effect live.
	//
	// +kubebuilder:default=Stopped
	State State `json:"state,omitempty"`

	// MachineUUID is the UUID that the guest sees. Default: the uid of the object. Takes effect at the next start.
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$')",message="must be a UUID, for example 6b1f0f0c-7a4e-4a57-9d0c-3c1d5f2b9a10; leave it out to get the uid of the object"
	MachineUUID *string `json:"machineUuid,omitempty"`

	// UseTPM gives the guest a TPM 2.0. Default false. Takes effect at the next start.
	//
	// +kubebuilder:default=false
	UseTPM bool `json:"useTpm,omitempty"`

	// Firmware is bios, uefi, or secure, which is UEFI with Secure Boot; -4m demands an image of 4 MiB. Default uefi.
	// Takes effect at the next start.
	//
	// +kubebuilder:default=uefi
	Firmware Firmware `json:"firmware,omitempty"`

	// BootMenu makes the firmware wait for a choice of the boot device. Default false. Takes effect at the next start.
	//
	// +kubebuilder:default=false
	BootMenu bool `json:"bootMenu,omitempty"`

	// PowerdownTimeout is how long the guest may take to shut down before its power is cut, in seconds, 1 to 86400.
	// Default 900. Takes effect live; the pod's grace period at the next start.
	//
	// +kubebuilder:default=900
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	PowerdownTimeout int32 `json:"powerdownTimeout,omitempty"`

	// CPUModel is a CPU model of QEMU with optional features, for example host or Skylake-Server,-hle. Default host.
	// Takes effect at the next start.
	//
	// +kubebuilder:default=host
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*(,[+-]?[A-Za-z0-9][A-Za-z0-9._-]*(=[A-Za-z0-9._-]*)?)*$')",message="must be a CPU model of QEMU with optional features after commas, for example host or Skylake-Server,-hle"
	CPUModel string `json:"cpuModel,omitempty"`

	// MaximumCPUs is the most virtual CPUs that the machine can have until it is restarted, 1 to 288. Either this or
	// cpuTopology is required. Takes effect at the next start.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=288
	MaximumCPUs *int32 `json:"maximumCpus,omitempty"`

	// CPUTopology is the arrangement of the most virtual CPUs that the machine can have. Either this or maximumCpus is
	// required. Takes effect at the next start.
	CPUTopology *CPUTopology `json:"cpuTopology,omitempty"`

	// CurrentCPUs is how many virtual CPUs the machine has, 1 to the maximum. Default: the maximum. Takes effect live.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=288
	CurrentCPUs *int32 `json:"currentCpus,omitempty"`

	// MaximumRAM is the most memory that the machine can have until it is restarted, a quantity of 1Mi to 16Ti, for
	// example 8Gi; without a suffix, bytes. Default 1G. Takes effect at the next start.
	//
	// +kubebuilder:default="1G"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,18}([.][0-9]{1,9})?(k|Ki|[MGTPE]i?|[eE][0-9]{1,2})?$')",message="must be a quantity in bytes, for example 8Gi"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[0-9]{1,18}([.][0-9]{1,9})?(k|Ki|[MGTPE]i?|[eE][0-9]{1,2})?$') || quantity(self).compareTo(quantity('1Mi')) >= 0 && quantity(self).compareTo(quantity('16Ti')) <= 0",message="must be 1Mi to 16Ti, for example 8Gi"
	MaximumRAM string `json:"maximumRam,omitempty"`

	// CurrentRAM is how much memory the guest may use, a quantity of 1Mi to maximumRam. Default: maximumRam. Takes
	// effect live.
	//
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,18}([.][0-9]{1,9})?(k|Ki|[MGTPE]i?|[eE][0-9]{1,2})?$')",message="must be a quantity in bytes, for example 4Gi"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[0-9]{1,18}([.][0-9]{1,9})?(k|Ki|[MGTPE]i?|[eE][0-9]{1,2})?$') || quantity(self).compareTo(quantity('1Mi')) >= 0",message="must be 1Mi or more, for example 4Gi"
	CurrentRAM *string `json:"currentRam,omitempty"`

	// RTCBase is the time that the guest's clock has at its start: utc, localtime, or a date with an optional time, such
	// as 2026-01-31T12:00:00. Default utc. Takes effect at the next start.
	//
	// +kubebuilder:default=utc
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^(utc|localtime|[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])(T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9])?)$')",message="must be utc, localtime, or a date like 2026-01-31 or 2026-01-31T12:00:00"
	RTCBase string `json:"rtcBase,omitempty"`

	// RTCClock is what drives the guest's clock: host, the host's clock, also when that is set; rt, the host's clock at
	// an even pace; vm, the time that the guest runs. Default rt. Takes effect at the next start.
	//
	// +kubebuilder:default=rt
	// +kubebuilder:validation:Enum=host;rt;vm
	RTCClock string `json:"rtcClock,omitempty"`

	// Acceleration is how QEMU runs the guest: auto uses KVM where it works, else software emulation; kvm uses KVM or
	// fails; tcg is software emulation. Default: auto. Takes effect at the next start.
	Acceleration Acceleration `json:"acceleration,omitempty"`

	// MachineType is the machine type of QEMU: q35, or a version of it, such as pc-q35-10.0. Default: the newest version
	// at the first start. Takes effect at the next start.
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^(q35|pc-q35-[0-9]+[.][0-9]+)$')",message="must be q35 or a version of it, for example pc-q35-10.0"
	MachineType *string `json:"machineType,omitempty"`

	// ExtraArgs are appended to the command line of QEMU, at most 64. They need a setting of the operator, because
	// they can do whatever the pod can. Default: none. Takes effect at the next start.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`self.all(a, a.matches(r'^\P{Cc}+$'))`,message="must be arguments without line breaks and other control characters, none of them empty"
	ExtraArgs []string `json:"extraArgs,omitempty"`

	// Networks are the network cards, at most 8. Default: one of type user; empty: none. Takes effect at the next start.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="size(self) < 2 || !self.exists(n, has(n.pod))",message="must not have other networks beside one of type pod, because the guest has the pod's only address"
	Networks []Network `json:"networks,omitzero"`

	// Disks are the disks and CD drives, at most 20, of which at most 6 are CD drives. Default: none. Takes effect at
	// the next start.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:XValidation:rule="self.all(d, d.?volumeClaimTemplate.?metadata.?name.orValue('') == '' || self.exists_one(e, e.?volumeClaimTemplate.?metadata.?name.orValue('') == d.volumeClaimTemplate.metadata.name))",message="must not have two disks of one name; give every disk its own name"
	// +kubebuilder:validation:XValidation:rule="self.all(d, !has(d.bootindex) || self.exists_one(e, e.?bootindex.orValue(-1) == d.bootindex))",message="must not have a bootindex twice; give every disk its own bootindex, or leave it out"
	// +kubebuilder:validation:XValidation:rule="self.filter(d, has(d.cdrom)).size() <= 6",message="must not have more than 6 CD drives, because the machine has no more ports for them; remove some"
	Disks []Disk `json:"disks,omitempty"`

	// Display is the screen, and how it is served. Default: SPICE at port 5900. Takes effect at the next start.
	//
	// +kubebuilder:default={spice: {port: 5900, usbRedirects: 2}}
	Display *Display `json:"display,omitempty"`
}

// CPUTopology is the arrangement of virtual CPUs. A part that is 0 is left to QEMU and counts as 1.
//
// +kubebuilder:validation:XValidation:rule="[1, self.sockets].max() * [1, self.diesPerSocket].max() * [1, self.coresPerDie].max() * [1, self.threadsPerCore].max() <= 288",message="must not have a product of more than 288 CPUs; lower one of sockets, diesPerSocket, coresPerDie and threadsPerCore"
type CPUTopology struct {
	// Sockets is how many sockets there are, 0 to 288. Default 1.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=288
	Sockets *int32 `json:"sockets,omitempty"`

	// DiesPerSocket is how many dies a socket has, 0 to 288. Default 0.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=288
	DiesPerSocket int32 `json:"diesPerSocket,omitempty"`

	// CoresPerDie is how many cores a die has, 0 to 288. Default 0.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=288
	CoresPerDie int32 `json:"coresPerDie,omitempty"`

	// ThreadsPerCore is how many threads a core has, 0 to 288. Default 0.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=288
	ThreadsPerCore int32 `json:"threadsPerCore,omitempty"`
}
