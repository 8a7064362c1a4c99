// Package v1 holds NetworkAttachmentDefinition, by which Multus attaches pods to more networks
// (https://github.com/k8snetworkplumbingwg/network-attachment-definition-client). Multus defines the kind; this package has
// only what the operator reads and writes.
//
// +kubebuilder:object:generate=true
// +groupName=k8s.cni.cncf.io
// +kubebuilder:skip
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of NetworkAttachmentDefinition.
var GroupVersion = schema.GroupVersion{Group: "k8s.cni.cncf.io", Version: "v1"}

// Resource is the name of the kind in URLs, which does not follow from the kind, and Definition that of its definition.
const (
	Resource   = "network-attachment-definitions"
	Definition = Resource + ".k8s.cni.cncf.io"
)

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &NetworkAttachmentDefinition{}, &NetworkAttachmentDefinitionList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// NetworkAttachmentDefinition is a network that pods of its namespace can be attached to.
//
// +kubebuilder:object:root=true
type NetworkAttachmentDefinition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the network.
	Spec NetworkAttachmentDefinitionSpec `json:"spec"`
}

// NetworkAttachmentDefinitionSpec is a network.
type NetworkAttachmentDefinitionSpec struct {
	// Config is the configuration of the CNI plugins, in JSON.
	Config string `json:"config"`
}

// NetworkAttachmentDefinitionList is a list of NetworkAttachmentDefinitions.
//
// +kubebuilder:object:root=true
type NetworkAttachmentDefinitionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NetworkAttachmentDefinition `json:"items"`
}
