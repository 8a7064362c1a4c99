// Package v1alpha1 holds SmolVM, the declaration of a machine that boots from a container image on one node, and
// SmolVMNode, what the runtime of a node reports.
//
// Manifests and stored objects of smolvm-operator (https://github.com/manuschillerdev/smolvm-operator) are accepted:
// names, phases, conditions and reasons are its own, and what is added is optional. Everything that the API server can
// check by the object alone is checked by the markers in this package.
//
// +kubebuilder:object:generate=true
// +groupName=vm.smolvm.dev
package v1alpha1
