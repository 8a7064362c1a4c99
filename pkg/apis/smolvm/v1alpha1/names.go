package v1alpha1

const (
	// Finalizer keeps a SmolVM until its machine is gone from its node.
	Finalizer = "smolvms.vm.smolvm.dev/finalizer"

	// AnnotationForceDelete lets a SmolVM go while the runtime of its node cannot be asked, if its value is
	// AnnotationTrue. What the machine has on the node may stay there.
	AnnotationForceDelete = "vm.smolvm.dev/force-delete-local-state"

	// AnnotationRecreate makes a machine again whose state on its node was lost, if its value is AnnotationTrue. It is
	// an addition to smolvm-operator, which makes such a machine again without being asked.
	AnnotationRecreate = "vm.smolvm.dev/recreate-lost-local-state"

	// AnnotationTrue is the only value with which the annotations above count.
	AnnotationTrue = "true"
)

// ProtocolVersion is the version of the protocol between a controller and the runtimes of nodes.
const ProtocolVersion = "v1alpha1"

// Types of conditions of a SmolVM.
const (
	// ConditionScheduled is about the node of the machine.
	ConditionScheduled = "Scheduled"
	// ConditionReady is about the machine on its node.
	ConditionReady = "Ready"
	// ConditionRuntimeReady has what ConditionReady has; clients of smolvm-operator read either.
	ConditionRuntimeReady = "RuntimeReady"
	// ConditionGuestReady is about the agent in the guest.
	ConditionGuestReady = "GuestReady"
	// ConditionReconciled is about the difference between spec and machine.
	ConditionReconciled = "Reconciled"
	// ConditionDeletionBlocked is true while a deletion waits for the runtime of the node.
	ConditionDeletionBlocked = "DeletionBlocked"
	// ConditionLocalStateLost is an addition: true while the state of the machine on its node is lost and nothing is
	// made in its place. False is written once the machine has been seen, and is the proof of that.
	ConditionLocalStateLost = "LocalStateLost"
)

// Types of conditions of a SmolVMNode, besides ConditionReady and ConditionRuntimeReady.
const (
	// NodeConditionKVM says whether KVM works on the node.
	NodeConditionKVM = "KVMAvailable"
	// NodeConditionSchedulable says whether SmolVMs may be placed on the node.
	NodeConditionSchedulable = "Schedulable"
)

// Reasons of smolvm-operator.
const (
	ReasonBound                        = "Bound"
	ReasonNoEligibleNodes              = "NoEligibleNodes"
	ReasonAwaitingNodeAssignment       = "AwaitingNodeAssignment"
	ReasonInvalidSpec                  = "InvalidSpec"
	ReasonScheduled                    = "Scheduled"
	ReasonCreated                      = "Created"
	ReasonObserved                     = "Observed"
	ReasonReconciled                   = "Reconciled"
	ReasonRuntimePending               = "RuntimePending"
	ReasonStartPending                 = "StartPending"
	ReasonResizePending                = "ResizePending"
	ReasonUnsupportedUpdate            = "UnsupportedUpdate"
	ReasonInvalidStorageResize         = "InvalidStorageResize"
	ReasonResizeRequiresStoppedMachine = "ResizeRequiresStoppedMachine"
	ReasonRuntimeUnavailable           = "RuntimeUnavailable"
	ReasonDeletionBlocked              = "DeletionBlocked"
	ReasonGuestReadinessUnavailable    = "GuestReadinessUnavailable"

	// ReasonReported and those after it are of events and of SmolVMNodes.
	ReasonReported              = "Reported"
	ReasonCreating              = "Creating"
	ReasonStarting              = "Starting"
	ReasonStopping              = "Stopping"
	ReasonResizing              = "Resizing"
	ReasonDeleting              = "Deleting"
	ReasonForceDeleteLocalState = "ForceDeleteLocalState"
)

// Reasons that are additions.
const (
	// ReasonImagePullFailed: there is no image, because the registry did not deliver it, or it is malformed.
	ReasonImagePullFailed = "ImagePullFailed"
	// ReasonUnsupportedArtifact: the .smolmachine file cannot run on the node.
	ReasonUnsupportedArtifact = "UnsupportedArtifact"
	// ReasonPortConflict: another process of the node has the port.
	ReasonPortConflict = "PortConflict"
	// ReasonInvalidRequest: the runtime refuses what it is asked.
	ReasonInvalidRequest = "InvalidRequest"
	// ReasonUnauthorized: the runtime does not accept the controller's token.
	ReasonUnauthorized = "Unauthorized"
	// ReasonCertificateMismatch: the endpoint does not have the certificate that the SmolVMNode shows.
	ReasonCertificateMismatch = "CertificateMismatch"
	// ReasonTimeout: the runtime did not answer in time.
	ReasonTimeout = "Timeout"
	// ReasonDiskFull: the disk of the node has no room.
	ReasonDiskFull = "DiskFull"
	// ReasonNodeReplaced: the node is another one under the same name, and does not know the machine.
	ReasonNodeReplaced = "NodeReplaced"
	// ReasonMachineMissing: the runtime no longer knows the machine.
	ReasonMachineMissing = "MachineMissing"
	// ReasonInsufficientResources: the spec has grown since the machine got its node, which has no room for it.
	ReasonInsufficientResources = "InsufficientResources"
	// ReasonRestartBackOff: the machine ended soon after it was started, and is started again after a pause.
	ReasonRestartBackOff = "RestartBackOff"
	// ReasonNoEffect: the runtime has answered that a step was taken, and the machine is as before.
	ReasonNoEffect = "NoEffect"
	// ReasonMachineUnreachable: the machine runs, and its guest does not answer.
	ReasonMachineUnreachable = "MachineUnreachable"
	// ReasonMachineNotOwned: the machine of that name belongs to another object.
	ReasonMachineNotOwned = "MachineNotOwned"
	// ReasonMachineObserved: the machine has been seen on its node.
	ReasonMachineObserved = "MachineObserved"
	// ReasonAgentAnswers: the agent in the guest answers.
	ReasonAgentAnswers = "AgentAnswers"
	// ReasonAgentSilent: the machine runs, and the agent in the guest does not answer.
	ReasonAgentSilent = "AgentSilent"
	// ReasonBooting: the guest is being started.
	ReasonBooting = "Booting"
	// ReasonGuestStopped: the guest does not run.
	ReasonGuestStopped = "GuestStopped"
)
