// Package nodeindexstatus is the handler of the nodes' indexes, which live in the status of the KVMConfig.
package nodeindexstatus

import (
	"context"
	"maps"
	"slices"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Handler assigns indexes. It is a separate kind of handler because an index has to be stored before anything uses it.
type Handler struct{}

// Name is the handler's name.
func (Handler) Name() string { return "nodeindexstatus" }

// EnsureCreated writes the indexes into the status. When they change, no later handler runs until they are stored.
func (Handler) EnsureCreated(_ context.Context, s *state.Cluster) (chain.Outcome, error) {
	if s.Config.Status.KVM == nil {
		s.Config.Status.KVM = &v1alpha1.LegacyKVMStatus{}
	}
	current := s.Config.Status.KVM.NodeIndexes
	var ids []string
	for _, n := range slices.Concat(s.Nodes, s.Retiring) {
		ids = append(ids, n.ID)
	}
	assigned := key.AssignIndexes(current, ids)
	if maps.Equal(current, assigned) {
		return chain.Done(), nil
	}
	s.Config.Status.KVM.NodeIndexes = assigned
	return chain.Store("node indexes were assigned"), nil
}

// EnsureDeleted does nothing because the indexes are deleted with the KVMConfig.
func (Handler) EnsureDeleted(context.Context, *state.Cluster) (chain.Outcome, error) {
	return chain.Done(), nil
}
