package machine

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	kubevirtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// lastApplied holds a second copy of an object, which kubectl compares.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Objects returns which objects the cache has: of claims, those with the label that all operators for Machines have set,
// and of Secrets only those of this operator. The others are none of its business.
func Objects() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.PersistentVolumeClaim{}: {Label: having(v1alpha1.LabelSourceMachine)},
		&corev1.Secret{}:                {Label: having(v1alpha1.LabelMachine)},
	}
}

func having(label string) labels.Selector {
	requirement, err := labels.NewRequirement(label, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	return labels.NewSelector().Add(*requirement)
}

// Trim removes from objects in the caches what the controllers do not read.
func Trim(object any) (any, error) {
	accessor, ok := object.(client.Object)
	if !ok {
		return object, nil // a tombstone: the object was deleted
	}
	apply.TrimManagedFields(accessor)
	delete(accessor.GetAnnotations(), lastApplied)
	switch o := object.(type) {
	case *kubevirtv1.VirtualMachine:
		trimVirtualMachine(o)
	case *kubevirtv1.VirtualMachineInstance:
		trimInstance(o)
	case *cdiv1.DataVolume:
		trimImport(o)
	case *storagev1.StorageClass:
		o.Parameters = nil
	case *metav1.PartialObjectMetadata:
		// The name, to find who refers to it, and the version, to know whether it was read.
		*o = metav1.PartialObjectMetadata{TypeMeta: o.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		}}
	}
	return object, nil
}

// trimVirtualMachine keeps of a VirtualMachine that no Machine has only that it exists, and of others the spec, which
// updates are compared with, and the few values of the status that are observed.
func trimVirtualMachine(vm *kubevirtv1.VirtualMachine) {
	if !ownership.Has(vm.Annotations) && vm.Labels[v1alpha1.LabelSourceMachine] == "" {
		vm.ObjectMeta = metav1.ObjectMeta{Namespace: vm.Namespace, Name: vm.Name, UID: vm.UID, ResourceVersion: vm.ResourceVersion}
		vm.Spec, vm.Status = kubevirtv1.VirtualMachineSpec{}, kubevirtv1.VirtualMachineStatus{}
		return
	}
	status := kubevirtv1.VirtualMachineStatus{PrintableStatus: vm.Status.PrintableStatus}
	for _, c := range vm.Status.Conditions {
		if c.Type == kubevirtv1.VirtualMachineFailure || c.Type == kubevirtv1.VirtualMachineRestartRequired {
			status.Conditions = append(status.Conditions, kubevirtv1.VirtualMachineCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	vm.Status = status
}

// trimImport keeps of a DataVolume its metadata, without those of DataVolumes that no Machine has, and its status without
// times.
func trimImport(dv *cdiv1.DataVolume) {
	dv.Spec = cdiv1.DataVolumeSpec{}
	if !ownership.Has(dv.Annotations) && dv.Labels[v1alpha1.LabelSourceMachine] == "" {
		dv.ObjectMeta = metav1.ObjectMeta{Namespace: dv.Namespace, Name: dv.Name, UID: dv.UID, ResourceVersion: dv.ResourceVersion}
		dv.Status = cdiv1.DataVolumeStatus{}
		return
	}
	for i := range dv.Status.Conditions {
		dv.Status.Conditions[i].LastHeartbeatTime, dv.Status.Conditions[i].LastTransitionTime = metav1.Time{}, metav1.Time{}
	}
}

// trimInstance keeps of an instance what is observed: its hardware, which is compared with that of the VirtualMachine, and its
// status without the past.
func trimInstance(vmi *kubevirtv1.VirtualMachineInstance) {
	vmi.ObjectMeta = metav1.ObjectMeta{
		Namespace: vmi.Namespace, Name: vmi.Name, UID: vmi.UID, ResourceVersion: vmi.ResourceVersion, DeletionTimestamp: vmi.DeletionTimestamp,
		Labels: vmi.Labels, OwnerReferences: vmi.OwnerReferences, CreationTimestamp: vmi.CreationTimestamp,
	}
	spec := kubevirtv1.VirtualMachineInstanceSpec{Domain: vmi.Spec.Domain, Networks: vmi.Spec.Networks}
	for i := range vmi.Spec.Volumes {
		spec.Volumes = append(spec.Volumes, withoutData(&vmi.Spec.Volumes[i]))
	}
	s := vmi.Status
	vmi.Spec, vmi.Status = spec, kubevirtv1.VirtualMachineInstanceStatus{
		Phase: s.Phase, NodeName: s.NodeName, Interfaces: s.Interfaces, VolumeStatus: s.VolumeStatus, GuestOSInfo: s.GuestOSInfo,
	}
	for _, c := range s.Conditions {
		c.LastProbeTime, c.LastTransitionTime = metav1.Time{}, metav1.Time{}
		vmi.Status.Conditions = append(vmi.Status.Conditions, c)
	}
}

// withoutData keeps of a volume its source, and of one with data for the first boot which Secrets it refers to.
func withoutData(v *kubevirtv1.Volume) kubevirtv1.Volume {
	kept := *v
	if c := v.CloudInitNoCloud; c != nil {
		kept.CloudInitNoCloud = &kubevirtv1.CloudInitNoCloudSource{UserDataSecretRef: c.UserDataSecretRef, NetworkDataSecretRef: c.NetworkDataSecretRef}
	}
	if c := v.CloudInitConfigDrive; c != nil {
		kept.CloudInitConfigDrive = &kubevirtv1.CloudInitConfigDriveSource{UserDataSecretRef: c.UserDataSecretRef, NetworkDataSecretRef: c.NetworkDataSecretRef}
	}
	return kept
}
