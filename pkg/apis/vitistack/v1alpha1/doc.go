// Package v1alpha1 holds Machine, the declaration of a virtual machine that KubeVirt runs, NetworkConfiguration, a network
// that Machines attach to, and MachineClass, a size that Machines refer to.
//
// The fields are those of the reference page of vitistack's KubeVirt Operator and, beside them, those of vitistack/common
// (https://github.com/vitistack/common), which older manifests have. Fields of the second kind are accepted, and their
// comments say "deprecated" or "no effect". Everything that the API server can check by the object alone is checked by the
// markers in this package.
//
// +kubebuilder:object:generate=true
// +groupName=vitistack.io
package v1alpha1
