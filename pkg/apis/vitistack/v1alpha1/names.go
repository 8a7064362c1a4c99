package v1alpha1

// Labels that users set on a Machine, or that the operator sets on the objects of one.
const (
	// LabelCluster names the cluster that a Machine belongs to. The operator copies it to the Machine's objects.
	LabelCluster = "cluster.vitistack.io/cluster-name"
	// LabelTemplate is the template of a Machine without spec.template. On a VirtualMachine it is the template in use.
	LabelTemplate = "vitistack.io/machine-template"
	// LabelMachine is on every object of a Machine and has the Machine's name.
	LabelMachine = "vitistack.io/machine"
	// LabelSourceMachine is the former LabelMachine, with the same value.
	LabelSourceMachine = "vitistack.io/source-machine"
	// LabelManagedBy is on every object of the operator, with the value of its setting MANAGED_BY.
	LabelManagedBy = "vitistack.io/managed-by"
	// LabelDiskType has the value DiskTypeBoot on the claim of the root disk.
	LabelDiskType = "vitistack.io/disk-type"
	// LabelVLAN is the VLAN of a NetworkAttachmentDefinition, where it has one.
	LabelVLAN = "vitistack.io/vlan-id"
)

// DiskTypeBoot is the value of LabelDiskType on the claim of a root disk.
const DiskTypeBoot = "boot"

const (
	// Finalizer holds a Machine until its objects are gone.
	Finalizer = "machine.vitistack.io/cleanup"
	// FormerFinalizer is that of vitistack's operator. It is removed with Finalizer.
	FormerFinalizer = "machine.vitistack.io/finalizer"
)

// AnnotationImport is on the claim of an imported disk: the claim's name, a space, and the URL. CDI copies it from the
// DataVolume. A clone of the claim has another name.
const AnnotationImport = "machine.vitistack.io/import"

// AnnotationApproveRestart on a Machine approves one restart: its value is the one that the condition AwaitingRestart
// names, which stands for the guest that runs and for the changes that wait.
const AnnotationApproveRestart = "machine.vitistack.io/approve-restart"

// Provider is the only value of spec.provider that this operator handles, beside the empty one.
const Provider = "kubevirt"

// Phases of a Machine.
const (
	// PhasePending: nothing is created yet.
	PhasePending = "Pending"
	// PhaseCreating: the objects are created, and the guest does not run yet.
	PhaseCreating = "Creating"
	// PhaseRunning: the guest runs.
	PhaseRunning = "Running"
	// PhaseStopped: the guest was stopped.
	PhaseStopped = "Stopped"
	// PhaseFailed: the Machine cannot run until something changes; Ready says what.
	PhaseFailed = "Failed"
)

// Conditions of a Machine.
const (
	// ConditionReady is True while the guest runs and all other conditions are True.
	ConditionReady = "Ready"
	// ConditionVirtualMachineReady is True while KubeVirt has the VirtualMachine and reports no failure.
	ConditionVirtualMachineReady = "VirtualMachineReady"
	// ConditionStorageReady is True while all claims are bound.
	ConditionStorageReady = "StorageReady"
	// ConditionNetworkReady is True while all networks exist.
	ConditionNetworkReady = "NetworkReady"
	// ConditionAwaitingRestart is True while there is a guest and changes wait for its next start. It is absent
	// otherwise.
	ConditionAwaitingRestart = "AwaitingRestart"
)

// Reasons of conditions other than Ready.
const (
	ReasonVMCreated         = "VMCreated"
	ReasonVMFailed          = "VMFailed"
	ReasonPVCBound          = "PVCBound"
	ReasonPVCPending        = "PVCPending"
	ReasonImporting         = "Importing"
	ReasonApprovalNeeded    = "ApprovalNeeded"
	ReasonRestarting        = "Restarting"
	ReasonRestartWaits      = "RestartWaits"
	ReasonNetworkConfigured = "NetworkConfigured"
	ReasonNetworkFailed     = "NetworkFailed"
)

// Reasons of the condition Ready that are no errors. ReasonRunning goes with True.
const (
	ReasonRunning         = "Running"
	ReasonPending         = "Pending"
	ReasonCreating        = "Creating"
	ReasonStopped         = "Stopped"
	ReasonPaused          = "Paused"
	ReasonStopping        = "Stopping"
	ReasonTerminating     = "Terminating"
	ReasonNodeUnreachable = "NodeUnreachable"
)

// Error types: reasons of the condition Ready, values of status.failureReason and labels of metrics.
const (
	// TemplateNotFound: spec.template names no template.
	TemplateNotFound = "TemplateNotFound"
	// NetworkConfigurationNotFound: spec.networks names no NetworkConfiguration of the namespace.
	NetworkConfigurationNotFound = "NetworkConfigurationNotFound"
	// StorageClassNotFound: a disk names no StorageClass, or there is no default one.
	StorageClassNotFound = "StorageClassNotFound"
	// InsufficientResources: no node has room, or a quota is exceeded.
	InsufficientResources = "InsufficientResources"
	// KubeVirtAPIError: KubeVirt is not installed, does not answer, or refuses the VirtualMachine.
	KubeVirtAPIError = "KubeVirtApiError"
	// InvalidSpec: the spec contradicts itself in a way that the API server cannot see.
	InvalidSpec = "InvalidSpec"
	// MachineClassNotFound: spec.machineClass names no MachineClass.
	MachineClassNotFound = "MachineClassNotFound"
	// MachineClassDisabled: the MachineClass has enabled: false.
	MachineClassDisabled = "MachineClassDisabled"
	// CloudInitSourceNotFound: a Secret or ConfigMap of spec.cloudInit, or its key, does not exist.
	CloudInitSourceNotFound = "CloudInitSourceNotFound"
	// NetworkAttachmentFailed: the NetworkAttachmentDefinition of a network does not exist.
	NetworkAttachmentFailed = "NetworkAttachmentFailed"
	// NameConflict: an object of the needed name exists and is not the Machine's.
	NameConflict = "NameConflict"
	// VMFailed: KubeVirt reports that the guest fails.
	VMFailed = "VMFailed"
	// CDINotInstalled: a disk is to be imported, and CDI is not installed.
	CDINotInstalled = "CDINotInstalled"
	// ImportFailed: CDI reports that it cannot import a disk. It continues to try.
	ImportFailed = "ImportFailed"
)

// ErrorTypes are all error types, in the order in which Ready names them if there are several.
func ErrorTypes() []string {
	return []string{
		TemplateNotFound, NetworkConfigurationNotFound, StorageClassNotFound, InsufficientResources, KubeVirtAPIError,
		InvalidSpec, MachineClassNotFound, MachineClassDisabled, CloudInitSourceNotFound, NetworkAttachmentFailed, NameConflict,
		CDINotInstalled, ImportFailed, VMFailed,
	}
}

// Reasons of Events that are no errors.
const (
	EventVMCreated         = "VMCreated"
	EventPVCCreated        = "PVCCreated"
	EventNetworkConfigured = "NetworkConfigured"
	EventRunning           = "Running"
	EventStopped           = "Stopped"
	EventRestarting        = "Restarting"
	EventCleanedUp         = "CleanedUp"
)

// Conditions and reasons of a NetworkConfiguration. Ready has the same status and reason as NADReady.
const (
	// ConditionAttachmentReady is True while the NetworkAttachmentDefinition is as the NetworkConfiguration asks.
	ConditionAttachmentReady = "NADReady"
	// ReasonAttachmentCreated goes with True.
	ReasonAttachmentCreated = "NADCreated"
	// ReasonAttachmentNotNeeded goes with True: the network is that of pods.
	ReasonAttachmentNotNeeded = "PodNetwork"
	// ReasonAttachmentFailed goes with False: the API server refuses the object, or Multus is not installed.
	ReasonAttachmentFailed = "NADFailed"
)
