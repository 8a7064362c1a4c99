// Package vitistack decides what a Machine needs: its size, disks, interfaces and boot data, what is wrong with it, and
// what its status says. It is pure: it reads nothing but its arguments.
package vitistack

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// KubeVirt says whether the API server serves KubeVirt's kinds, or those of another program.
type KubeVirt int

const (
	// Unknown means that this has not been found out yet, or the caches of its kinds are not filled yet.
	Unknown KubeVirt = iota
	// Absent means that the program is not installed.
	Absent
	// Installed means that its objects in Observed are what exists.
	Installed
)

// Settings are the operator's settings for Machines.
type Settings struct {
	// ManagedBy is the value of the label managed-by on all objects.
	ManagedBy string
	// Templates are the sizes by name; the three built-in ones are always among them.
	Templates map[string]Template
	// StorageClass is the class of disks that name none; empty for the cluster's default class.
	StorageClass string
	// AccessMode and VolumeMode are those of disks that set none, in Machines that are written in the fields of
	// vitistack/common.
	AccessMode, VolumeMode string
	// CPUModel is the CPU model of all machines; empty for KubeVirt's default.
	CPUModel string
	// MACSet is the second octet of derived MAC addresses.
	MACSet byte
	// CNIVersion is the version in NetworkAttachmentDefinitions.
	CNIVersion string
}

// Template is a size that Machines refer to.
type Template struct {
	CPU    v1alpha1.CPU
	Memory v1alpha1.Quantity
	Disks  []v1alpha1.Disk
}

// Source is one value of a Secret or ConfigMap.
type Source struct {
	// ConfigMap is true for a ConfigMap and false for a Secret.
	ConfigMap bool
	// Name of the object in the namespace of the Machine, and Key of the value.
	Name, Key string
}

// Observed is what was read for a pass over one Machine. Nothing in it is changed.
type Observed struct {
	Machine  *v1alpha1.Machine
	Settings Settings
	// Class is the MachineClass that the spec names, nil if there is none of that name.
	Class *v1alpha1.MachineClass
	// Networks are the NetworkConfigurations that the spec names, by name. Missing ones are not in it.
	Networks map[string]*v1alpha1.NetworkConfiguration
	// StorageClasses are those of the cluster.
	StorageClasses []storagev1.StorageClass
	// Claims are the claims of the namespace that ClaimsOf names, or that have the Machine's label, by name.
	Claims map[string]*corev1.PersistentVolumeClaim
	// Sources are the values that spec.cloudInit refers to. Missing ones are not in it.
	Sources map[Source][]byte
	// MACs are the older Machines of the namespace, by the MAC addresses that they have or may get: see TakenMACs. An
	// older Machine keeps an address that a younger one has too.
	MACs map[string]string
	// KubeVirt says whether VM and VMI are known.
	KubeVirt KubeVirt
	// VM and VMI have the name of the Machine; nil if there is none. They may be foreign: see Owns.
	VM  *kubevirtv1.VirtualMachine
	VMI *kubevirtv1.VirtualMachineInstance
	// CDI says whether Imports are known: the DataVolumes of the namespace that have the Machine's label, by name.
	CDI     KubeVirt
	Imports map[string]*cdiv1.DataVolume
	// Observation is what VM and VMI say: kubevirt.Observe(VM, VMI) if VM is the Machine's, else the zero value.
	Observation Observation
	Now         time.Time
}

// State is what was read for a pass, and what follows from it.
type State struct {
	Observed

	// Wanted is what the Machine needs. It is complete as far as Problems allow.
	Wanted Wanted
	// Problems are what is wrong with the Machine or with what it refers to, in the order of v1alpha1.ErrorTypes.
	Problems []Problem
}

// Problem is one thing that is wrong.
type Problem struct {
	// Type is an error type of the API.
	Type string
	// Message names the object, what is wrong, and the way out.
	Message string
	// Network is the NetworkConfiguration that is missing or not ready, if that is the problem.
	Network string
}

// Wanted is what a Machine needs.
type Wanted struct {
	// Template is the template in use; empty for none.
	Template string
	// CPU has all three numbers.
	CPU    v1alpha1.CPU
	Memory resource.Quantity
	// Disks are in the order of the guest, with their boot order.
	Disks []Disk
	// Interfaces are in the order of the guest, with their boot order.
	Interfaces []Interface
	// CloudInit is nil for none.
	CloudInit *CloudInit
	// CPUModel is empty for KubeVirt's default.
	CPUModel string
	Domain   v1alpha1.Domain
}

// Disk is one disk.
type Disk struct {
	Name string
	// Claim is the claim of the disk; empty for one from a container image.
	Claim string
	// StorageClass is nil where the cluster's default is meant.
	StorageClass *string
	Size         resource.Quantity
	AccessMode   corev1.PersistentVolumeAccessMode
	// VolumeMode is empty for that of Kubernetes.
	VolumeMode corev1.PersistentVolumeMode
	// Bus is virtio, sata or scsi.
	Bus string
	// BootOrder is 0 for none.
	BootOrder uint
	// Root is true for the disk that the guest boots from.
	Root bool
	// Source is nil for an empty disk.
	Source *v1alpha1.DiskSource
}

// Interface is one network interface.
type Interface struct {
	Name, Model string
	// MAC is in lower case with colons.
	MAC string
	// Attachment is the NetworkAttachmentDefinition; empty for the network of pods.
	Attachment string
	// BootOrder is 0 for none.
	BootOrder uint
}

// CloudInit is the data for the guest's first boot.
type CloudInit struct {
	// UserData and NetworkData are nil where there is none.
	UserData, NetworkData []byte
	// Secret holds the data; empty if they are part of the VirtualMachine.
	Secret string
	// ConfigDrive selects the kind of disk; NoCloud otherwise.
	ConfigDrive bool
	// Kept is the volume of the VirtualMachine that exists, if that and Secret are kept unchanged, because a source of
	// the data is gone; nil otherwise. Of the other fields only Secret is set then, and Missing, which says what is
	// gone.
	Kept    *kubevirtv1.VolumeSource
	Missing string
}

// ownerKind is the kind of the owners that objects of Machines name.
const ownerKind = "Machine.vitistack.io"

// Owner is the owner of the objects of a handler. A DataVolume has that of claims, because CDI copies the annotations
// of the one to the other.
func (s *State) Owner(handler string) ownership.Owner {
	if handler == HandlerImport || handler == HandlerHandOver {
		handler = HandlerStorage
	}
	return ownership.Owner{Kind: ownerKind, Namespace: s.Machine.Namespace, Name: s.Machine.Name, UID: s.Machine.UID, Handler: handler}
}

// Places are where the objects of a Machine are: in its namespace. An annotation alone makes no object the Machine's:
// KubeVirt copies those of a VirtualMachine and its claims to their clones and snapshots, which hold the data of
// others.
func (s *State) Places() apply.Places {
	return apply.Places{Namespaces: []string{s.Machine.Namespace}, Counts: apply.CountsBy(s.made)}
}

// made returns whether an object that names the Machine as its owner is one that the operator makes, and not a copy of
// one: by its name, and claims, whose names may be of a user's choice, by their controller, which the operator sets.
// Its UID is another one after a restore from a backup.
func (s *State) made(object metav1.Object) bool {
	switch object.(type) {
	case *kubevirtv1.VirtualMachine:
		return object.GetName() == s.Machine.Name
	case *corev1.Secret:
		return object.GetName() == CloudInitSecret(s.Machine.Name)
	case *corev1.PersistentVolumeClaim:
		if importedClaim(object) {
			return true
		}
	}
	c := metav1.GetControllerOf(object)
	return c != nil && s.controls(c)
}

// controls returns whether a controller of an object is the Machine, or a former one of its name.
func (o *Observed) controls(c *metav1.OwnerReference) bool {
	return c.APIVersion == v1alpha1.GroupVersion.String() && c.Kind == "Machine" && c.Name == o.Machine.Name
}
