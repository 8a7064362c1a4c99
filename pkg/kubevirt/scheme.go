package kubevirt

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Names of the definitions of KubeVirt's and CDI's kinds that the operator uses.
const (
	DefinitionVirtualMachines         = "virtualmachines.kubevirt.io"
	DefinitionVirtualMachineInstances = "virtualmachineinstances.kubevirt.io"
	DefinitionDataVolumes             = "datavolumes.cdi.kubevirt.io"
)

// AddToScheme registers VirtualMachine and VirtualMachineInstance in version v1 only, because KubeVirt's own function
// registers v1alpha3 too, and then no version follows from a Go type. It also registers DataVolume of CDI.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(kubevirtv1.GroupVersion,
		&kubevirtv1.VirtualMachine{}, &kubevirtv1.VirtualMachineList{},
		&kubevirtv1.VirtualMachineInstance{}, &kubevirtv1.VirtualMachineInstanceList{})
	metav1.AddToGroupVersion(scheme, kubevirtv1.GroupVersion)
	scheme.AddKnownTypes(cdiv1.SchemeGroupVersion, &cdiv1.DataVolume{}, &cdiv1.DataVolumeList{})
	metav1.AddToGroupVersion(scheme, cdiv1.SchemeGroupVersion)
	return nil
}
