// Package nodeindexstatus is the handler of the nodes' indexes, which live in the status of the KVMConfig.
package nodeindexstatus

import (
	"context"
	"maps"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Handler makes sure that an index is stored before anything uses it.
type Handler struct{}

// Name is the handler's name.
func (Handler) Name() string { return "nodeindexstatus" }

// EnsureCreated lets no later handler run while the planned indexes differ from those that are stored.
func (Handler) EnsureCreated(_ context.Context, s *state.Cluster) (chain.Outcome, error) {
	if kvm := s.Config.Status.KVM; kvm != nil && maps.Equal(kvm.NodeIndexes, s.Indexes) || len(s.Indexes) == 0 {
		return chain.Done(), nil
	}
	return chain.Store("node indexes were assigned"), nil
}

// EnsureDeleted does nothing because the indexes are deleted with the KVMConfig.
func (Handler) EnsureDeleted(context.Context, *state.Cluster) (chain.Outcome, error) {
	return chain.Done(), nil
}
