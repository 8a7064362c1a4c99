// Package virtualmachine is what the controller of VirtualMachines decides: names, disks, the machine of a runner, the
// pod template, and what to do once a guest has shut down. It is pure: it reads and writes nothing.
package virtualmachine

import (
	"maps"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// Labels of all objects of virtual machines, as VM-Operator sets them.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelInstance  = "app.kubernetes.io/instance"
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelComponent = "app.kubernetes.io/component"

	// Runner is the value of LabelName, and of LabelComponent for pods.
	Runner = "vm-runner"
	// Manager is the value of LabelManagedBy.
	Manager = "vm-operator"
)

const (
	// AnnotationMachine has a hash of each part of a pod that needs a restart to change, as JSON, by its field.
	AnnotationMachine = "kvm-operator.giantswarm.io/machine"
	// AnnotationLive has the fields that can change while the machine runs, with their values at the creation of its
	// pod, as JSON.
	AnnotationLive = "kvm-operator.giantswarm.io/live"
	// AnnotationCloudInit is the hash of the cloud-init data of a pod template, and of the Secret that has the data.
	AnnotationCloudInit = "kvm-operator.giantswarm.io/cloud-init"
	// AnnotationDisplay is the version of the Secret with the display's password of which the kubelet was notified.
	AnnotationDisplay = "kvm-operator.giantswarm.io/display-secret"
	// AnnotationInstance is the instance-id in a Secret.
	AnnotationInstance = "kvm-operator.giantswarm.io/instance-id"
	// AnnotationGeneration is the generation of the VirtualMachine for which it was chosen.
	AnnotationGeneration = "kvm-operator.giantswarm.io/instance-generation"
)

// OwnerKind is the kind and group of owners in annotations.
const OwnerKind = "VirtualMachine.vmoperator.jdrupes.org"

// Labels returns the labels of the objects of a virtual machine.
func Labels(name string, more ...map[string]string) map[string]string {
	labels := map[string]string{LabelName: Runner, LabelInstance: name, LabelManagedBy: Manager}
	for _, m := range more {
		maps.Copy(labels, m)
	}
	return labels
}

// PodName returns the name of the pod that the StatefulSet of a virtual machine creates.
func PodName(name string) string { return name + "-0" }

// CloudInitName returns the name of the Secret with the cloud-init data.
func CloudInitName(name string) string { return name + "-cloud-init" }

// claimName returns the name of the claim that a StatefulSet creates from a template.
func claimName(template, name string) string { return template + "-" + PodName(name) }

// RunnerData is the name of the claim template, and the volume, that keeps firmware variables and the state of a TPM.
const RunnerData = "runner-data"

// Owner returns the owner of the objects of a handler.
func (s *State) Owner(handler string) ownership.Owner {
	return ownership.Owner{Kind: OwnerKind, Namespace: s.VM.Namespace, Name: s.VM.Name, UID: s.VM.UID, Handler: handler}
}
