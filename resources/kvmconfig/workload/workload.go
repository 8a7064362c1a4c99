// Package workload is the handler of the connection to the workload cluster.
package workload

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Forgetter ends connections to workload clusters.
type Forgetter interface {
	Forget(s *state.Cluster)
}

// New returns the handler. The connection is established while the state is gathered because the state contains
// what it returns.
func New(f Forgetter) chain.Handler[*state.Cluster] { return handler{f} }

type handler struct{ forgetter Forgetter }

// Name is the handler's name.
func (handler) Name() string { return "workload" }

// EnsureCreated waits until the API of the workload cluster answers. A change triggers a reconcile.
func (handler) EnsureCreated(_ context.Context, s *state.Cluster) (chain.Outcome, error) {
	if s.Workload.Connected {
		return chain.Done(), nil
	}
	return chain.Wait(s.Workload.Reason, s.Workload.Message, 0), nil
}

// EnsureDeleted closes the connection. Nothing in the workload cluster has to be undone.
func (h handler) EnsureDeleted(_ context.Context, s *state.Cluster) (chain.Outcome, error) {
	h.forgetter.Forget(s)
	return chain.Done(), nil
}
