package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of SmolVM and SmolVMNode.
var GroupVersion = schema.GroupVersion{Group: "vm.smolvm.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &SmolVM{}, &SmolVMList{}, &SmolVMNode{}, &SmolVMNodeList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
