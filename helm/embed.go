// Package helm carries the files of the chart that the binary needs too.
package helm

import _ "embed" // for the files below

// KVMConfigCRD is the CustomResourceDefinition of KVMConfig.
//
//go:embed kvm-operator/crds/provider.giantswarm.io_kvmconfigs.yaml
var KVMConfigCRD []byte

// VirtualMachineCRD is the CustomResourceDefinition of VirtualMachine.
//
//go:embed kvm-operator/crds/vmoperator.jdrupes.org_vms.yaml
var VirtualMachineCRD []byte
