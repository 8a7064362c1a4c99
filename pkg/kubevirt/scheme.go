package kubevirt

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// Names of the definitions of KubeVirt's kinds that the operator uses.
const (
	DefinitionVirtualMachines         = "virtualmachines.kubevirt.io"
	DefinitionVirtualMachineInstances = "virtualmachineinstances.kubevirt.io"
)

// AddToScheme registers VirtualMachine and VirtualMachineInstance in version v1 only. KubeVirt's own function registers
// v1alpha3 too, and then no version follows from a Go type.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(kubevirtv1.GroupVersion,
		&kubevirtv1.VirtualMachine{}, &kubevirtv1.VirtualMachineList{},
		&kubevirtv1.VirtualMachineInstance{}, &kubevirtv1.VirtualMachineInstanceList{})
	metav1.AddToGroupVersion(scheme, kubevirtv1.GroupVersion)
	return nil
}
