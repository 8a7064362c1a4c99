// Package v1 holds VirtualMachine, the declaration of one virtual machine that runs in a pod.
//
// Manifests of the original VM-Operator are accepted; fields without effect say so. Everything that the API server can
// check by the object alone is checked by the markers in this package.
//
// +kubebuilder:object:generate=true
// +groupName=vmoperator.jdrupes.org
package v1
