// Package v1alpha1 holds Release, a named set of component versions.
//
// +kubebuilder:object:generate=true
// +groupName=release.giantswarm.io
package v1alpha1
