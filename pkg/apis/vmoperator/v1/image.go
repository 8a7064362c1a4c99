package v1

import (
	corev1 "k8s.io/api/core/v1"
)

// Image is a container image: its whole reference, or the parts of it.
//
// +kubebuilder:validation:XValidation:rule="has(self.source) ? !has(self.repository) && !has(self.path) && !has(self.version) : has(self.repository) && has(self.path)",message="must have either source, or repository and path with an optional version; write source: registry.example.org/vm/runner:1.0, for example"
type Image struct {
	// Source is the whole reference, for example registry.example.org/vm/runner:1.0.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._:/@-]*$')",message="must be the reference of an image, for example registry.example.org/vm/runner:1.0"
	Source *string `json:"source,omitempty"`

	// Repository is the part before the path, for example registry.example.org.
	//
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]([A-Za-z0-9._:/-]*[A-Za-z0-9])?$')",message="must be a registry with an optional path, for example registry.example.org"
	Repository *string `json:"repository,omitempty"`

	// Path is the name of the image in the repository, for example vm/runner.
	//
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]+([._/-]+[a-z0-9]+)*$')",message="must be the name of an image in the repository, lower-case letters, digits, '.', '_', '-' and '/', for example vm/runner"
	Path *string `json:"path,omitempty"`

	// Version is the tag of the image. Default: latest.
	//
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_][A-Za-z0-9._-]*$')",message="must be a tag, letters, digits, '.', '_' and '-', for example 1.0"
	Version *string `json:"version,omitempty"`

	// PullPolicy is when the image is pulled: Always, Never or IfNotPresent. Default: IfNotPresent, also for the tag
	// latest.
	//
	// +kubebuilder:validation:Enum=Always;Never;IfNotPresent
	PullPolicy corev1.PullPolicy `json:"pullPolicy,omitempty"`
}
