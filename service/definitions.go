package service

import (
	"context"
	"reflect"

	providerv1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	smolvmv1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	vmoperatorv1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/definitions"
)

// ownKinds are the operator's kinds, by the names of their definitions.
var ownKinds = map[string]definitions.Kind{
	definitionsOfClusters[0]:  {Version: "v1alpha1", Type: reflect.TypeFor[providerv1alpha1.KVMConfig]()},
	definitionsOfClusters[1]:  {Version: "v1alpha1", Type: reflect.TypeFor[releasev1alpha1.Release]()},
	definitionVirtualMachines: {Version: "v1", Type: reflect.TypeFor[vmoperatorv1.VirtualMachine]()},
	definitionsOfSmolVMs[0]:   {Version: "v1alpha1", Type: reflect.TypeFor[smolvmv1alpha1.SmolVM]()},
	definitionsOfSmolVMs[1]:   {Version: "v1alpha1", Type: reflect.TypeFor[smolvmv1alpha1.SmolVMNode]()},
}

// definitionsOf returns the names of the definitions of the kinds that an operator runs for.
func definitionsOf(c Config) []string {
	var names []string
	if !c.NoClusters {
		names = append(names, definitionsOfClusters...)
	}
	if c.VirtualMachines != nil {
		names = append(names, definitionVirtualMachines)
	}
	if c.SmolVMs != nil {
		names = append(names, definitionsOfSmolVMs...)
	}
	return names
}

// definitionsOfClusters are the names of the definitions that the controllers of clusters need.
var definitionsOfClusters = []string{"kvmconfigs." + providerv1alpha1.GroupVersion.Group, "releases." + releasev1alpha1.GroupVersion.Group}

// definitionVirtualMachines is the name of the definition of VirtualMachines. The controllers of clusters do not need it.
const definitionVirtualMachines = "vms.vmoperator.jdrupes.org"

// outdated returns what is wrong with the definitions that the controllers of clusters need, and how to fix it. It is
// empty while they have what the operator needs.
func (s *Service) outdated(ctx context.Context) string {
	return s.definitions.Outdated(ctx, definitionsOfClusters...)
}
