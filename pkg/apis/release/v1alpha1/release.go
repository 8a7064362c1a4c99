package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of Release.
var GroupVersion = schema.GroupVersion{Group: "release.giantswarm.io", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Release{}, &ReleaseList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Release is a named set of component versions. A KVMConfig chooses the Release "v1.2.3" by its label
// release.giantswarm.io/version=1.2.3.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=releases,singular=release,scope=Cluster,categories={common,giantswarm}
// +kubebuilder:printcolumn:name="Kubernetes version",type=string,JSONPath=`.spec.components[?(@.name=="kubernetes")].version`,description="Version of Kubernetes in this release"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.spec.state`,description="State of the release"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.spec.date`,description="Time since the release was published"
// +kubebuilder:printcolumn:name="Ready",type=boolean,JSONPath=`.status.ready`,description="Whether everything the release needs is deployed"
// +kubebuilder:printcolumn:name="InUse",type=boolean,JSONPath=`.status.inUse`,description="Whether a cluster has this release"
// +kubebuilder:printcolumn:name="Release notes",type=string,priority=1,JSONPath=`.metadata.annotations['giantswarm\.io/release-notes']`,description="Where the release notes are"
type Release struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ReleaseSpec   `json:"spec"`
	Status ReleaseStatus `json:"status,omitempty"`
}

// ReleaseList is a list of Releases.
//
// +kubebuilder:object:root=true
type ReleaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Release `json:"items"`
}

// ReleaseSpec lists the components of a release.
type ReleaseSpec struct {
	// Apps are deployed by other operators, at most 256.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Apps []App `json:"apps"`

	// Components are the parts of the cluster, 1 to 256, each name once. kvm-operator reads kubernetes, etcd, calico and
	// containerlinux.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Components []Component `json:"components"`

	// Date is when the release was published.
	//
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time like 2006-01-02T15:04:05Z"
	Date *metav1.Time `json:"date"`

	// EndOfLifeDate is when the maintenance of the release ends.
	//
	// +nullable
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time like 2006-01-02T15:04:05Z"
	EndOfLifeDate *metav1.Time `json:"endOfLifeDate,omitempty"`

	// State is active, deprecated or wip.
	State State `json:"state"`
}

// State is the state of a release.
//
// +kubebuilder:validation:Enum=active;deprecated;wip
type State string

// App is an application that other operators deploy.
type App struct {
	// Catalog is the catalog that contains the app.
	//
	// +kubebuilder:default=default
	// +kubebuilder:validation:MaxLength=253
	Catalog string `json:"catalog,omitempty"`

	// ComponentVersion is the version of the software in the app.
	//
	// +kubebuilder:validation:MaxLength=253
	ComponentVersion string `json:"componentVersion,omitempty"`

	// Name of the app.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Version of the app, a semantic version without a leading "v".
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|[1-9][0-9]*)[.](0|[1-9][0-9]*)[.](0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?([+][0-9A-Za-z.-]+)?$')",message="must be a semantic version of three numbers without a leading \"v\", for example 1.21.5"
	Version string `json:"version"`
}

// Component is one part of a cluster.
type Component struct {
	// Catalog is the catalog that contains the component.
	//
	// +kubebuilder:default=control-plane-catalog
	// +kubebuilder:validation:MaxLength=253
	Catalog string `json:"catalog,omitempty"`

	// Name of the component.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Reference is the version of the component's package, if it differs.
	//
	// +kubebuilder:validation:MaxLength=253
	Reference string `json:"reference,omitempty"`

	// ReleaseOperatorDeploy is read by other operators.
	ReleaseOperatorDeploy bool `json:"releaseOperatorDeploy,omitempty"`

	// Version of the component, a semantic version without a leading "v".
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|[1-9][0-9]*)[.](0|[1-9][0-9]*)[.](0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?([+][0-9A-Za-z.-]+)?$')",message="must be a semantic version of three numbers without a leading \"v\", for example 1.21.5"
	Version string `json:"version"`
}

// ReleaseStatus is written by other operators.
type ReleaseStatus struct {
	// InUse says that a cluster has this release.
	InUse bool `json:"inUse,omitempty"`

	// Ready says that everything the release needs is deployed.
	Ready bool `json:"ready,omitempty"`
}
