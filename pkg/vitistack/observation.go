package vitistack

import (
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// Observation is what KubeVirt says about a Machine: its VirtualMachine, and the VirtualMachineInstance which is that
// VirtualMachine's guest. The zero value says that there is no VirtualMachine.
//
// Much of it comes from the agent in the guest, so texts and lists are bounded, and addresses are checked.
type Observation struct {
	// Created is true if there is a VirtualMachine. Without one everything else is empty.
	Created bool
	// Printable is KubeVirt's own word; empty in a new VirtualMachine, or Stopped, which is the default of the API.
	Printable kubevirtv1.VirtualMachinePrintableStatus
	// RunStrategy is the present one of the VirtualMachine. Users change it by starting and stopping.
	RunStrategy kubevirtv1.VirtualMachineRunStrategy
	// Failure is the message of the VirtualMachine's condition Failure; empty while it is not True.
	Failure string
	// RestartRequired is the message of the VirtualMachine's condition RestartRequired; empty while it is not True.
	RestartRequired string
	// Unschedulable is why no node or no quota has room for the guest; empty while there is room, or that is not
	// decided.
	Unschedulable string

	// Pending are the differences between the VirtualMachine, as the Machine asks for it, and the guest, each as "what
	// old → new". They are known only while RestartRequired says that there are some: the guest may take up others by
	// itself.
	Pending []string

	// Instance is true if there is a VirtualMachineInstance. Without one everything below is empty.
	Instance bool
	// UID of the VirtualMachineInstance: each start makes another one.
	UID types.UID
	// Phase of the VirtualMachineInstance.
	Phase kubevirtv1.VirtualMachineInstancePhase
	// Ready is true while the VirtualMachineInstance's condition Ready is True.
	Ready bool
	// NotReady is the message of the condition Ready while it is not True; it may be empty.
	NotReady string
	// MovesVolumes is true while KubeVirt copies the guest's volumes to others, as a user has asked it to.
	MovesVolumes bool
	// Paused is true while the guest is paused.
	Paused bool
	// Stopping is true while the VirtualMachine or its instance is being stopped or deleted.
	Stopping bool

	// Node is the node of the guest, empty before it has one.
	Node string
	// Interfaces are those with a MAC address, in the order of the guest's hardware, then those that only the guest
	// knows.
	Interfaces []v1alpha1.NetworkInterfaceStatus
	// Disks are those with a claim, in the order of the guest's hardware.
	Disks []v1alpha1.DiskStatus
	// OperatingSystem, OperatingSystemVersion and KernelVersion are what the agent in the guest reports.
	OperatingSystem, OperatingSystemVersion, KernelVersion string
}

// Runs returns whether the guest runs.
func (o Observation) Runs() bool { return o.Instance && o.Phase == kubevirtv1.Running }

// located returns whether what the VirtualMachineInstance says about the guest is about a guest that runs, or that ran
// when its node was last heard.
func (o Observation) located() bool {
	return o.Runs() || o.Instance && o.Phase == kubevirtv1.Unknown
}

// halts returns whether the guest is not started again when it ends well.
func (o Observation) halts() bool {
	switch o.RunStrategy {
	case kubevirtv1.RunStrategyHalted, kubevirtv1.RunStrategyManual, kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyOnce:
		return true
	}
	return false
}

// failed returns whether the guest failed and is not started again.
func (o Observation) failed() bool {
	return o.Instance && o.Phase == kubevirtv1.Failed && o.halts() && o.RunStrategy != kubevirtv1.RunStrategyRerunOnFailure
}
