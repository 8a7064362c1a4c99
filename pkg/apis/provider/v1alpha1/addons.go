package v1alpha1

// AddOns are what the operator installs in the workload cluster and keeps there.
type AddOns struct {
	// KubeProxy is the service proxy.
	KubeProxy AddOn `json:"kubeProxy,omitzero"`

	// CoreDNS is the cluster's DNS.
	CoreDNS AddOn `json:"coreDNS,omitzero"`

	// CNI is the pod network.
	CNI CNI `json:"cni,omitzero"`
}

// AddOn is one thing that the operator installs in the workload cluster.
type AddOn struct {
	// Disabled removes the add-on that the operator installed, for clusters that install it by other means.
	Disabled bool `json:"disabled,omitempty"`

	// Image replaces the operator's default image, with its tag or digest.
	//
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == \"\" || self.matches('^((([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])([.]([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+(:[0-9]+)?|[a-z0-9-]*[a-z0-9]:[0-9]+|localhost)/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$')",message="must be an image with its tag or digest, in lower case but for the tag, for example registry.example.org/flannel:v0.27.0"
	Image string `json:"image,omitempty"`
}

// CNIType is a network for pods.
//
// +kubebuilder:validation:Enum=flannel;custom;none
type CNIType string

const (
	// CNIFlannel is flannel with its VXLAN backend.
	CNIFlannel CNIType = "flannel"
	// CNICustom is what the user's manifests say.
	CNICustom CNIType = "custom"
	// CNINone leaves the network to the user; nodes are not Ready before there is one.
	CNINone CNIType = "none"
)

// CNI is the pod network. Its range and MTU are those of spec.cluster.calico, whatever the type.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'custom' ? has(self.manifests) : !has(self.manifests)",fieldPath=".manifests",message="goes with type custom, which needs it: name both, or neither"
type CNI struct {
	// Type is flannel, custom for a network that the operator installs from manifests, or none for a network that is
	// installed by other means.
	//
	// +kubebuilder:default=flannel
	Type CNIType `json:"type,omitempty"`

	// Image replaces flannel's image, with its tag or digest.
	//
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == \"\" || self.matches('^((([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])([.]([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+(:[0-9]+)?|[a-z0-9-]*[a-z0-9]:[0-9]+|localhost)/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$')",message="must be an image with its tag or digest, in lower case but for the tag, for example registry.example.org/flannel:v0.27.0"
	Image string `json:"image,omitempty"`

	// PluginImage replaces the image of flannel's CNI plugin, with its tag or digest.
	//
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == \"\" || self.matches('^((([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])([.]([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+(:[0-9]+)?|[a-z0-9-]*[a-z0-9]:[0-9]+|localhost)/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$')",message="must be an image with its tag or digest, in lower case but for the tag, for example registry.example.org/flannel:v0.27.0"
	PluginImage string `json:"pluginImage,omitempty"`

	// Manifests are the objects of a network of type custom: YAML documents of the kinds that docs/addons.md names.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=524288
	Manifests string `json:"manifests,omitempty"`
}
