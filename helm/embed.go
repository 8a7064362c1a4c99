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

// MachineCRD is the CustomResourceDefinition of Machine.
//
//go:embed kubevirt-operator/crds/vitistack.io_machines.yaml
var MachineCRD []byte

// NetworkConfigurationCRD is the CustomResourceDefinition of NetworkConfiguration.
//
//go:embed kubevirt-operator/crds/vitistack.io_networkconfigurations.yaml
var NetworkConfigurationCRD []byte

// MachineClassCRD is the CustomResourceDefinition of MachineClass.
//
//go:embed kubevirt-operator/crds/vitistack.io_machineclasses.yaml
var MachineClassCRD []byte
