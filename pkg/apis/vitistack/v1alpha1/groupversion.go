package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of Machine, NetworkConfiguration and MachineClass.
var GroupVersion = schema.GroupVersion{Group: "vitistack.io", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Machine{}, &MachineList{}, &NetworkConfiguration{}, &NetworkConfigurationList{}, &MachineClass{}, &MachineClassList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
