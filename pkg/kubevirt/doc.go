// Package kubevirt translates between Machines and KubeVirt: the VirtualMachine that a Machine needs, and what
// VirtualMachine and VirtualMachineInstance say about it. It is pure and has no client.
package kubevirt
