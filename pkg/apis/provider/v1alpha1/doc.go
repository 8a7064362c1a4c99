// Package v1alpha1 holds KVMConfig, the declaration of one workload cluster whose nodes are virtual machines.
//
// Fields that the original operator knew keep their names, so that its manifests are accepted unchanged; those that
// have lost their meaning say so. Everything the API server can check is checked there, by the markers in this package.
//
// +kubebuilder:object:generate=true
// +groupName=provider.giantswarm.io
package v1alpha1
