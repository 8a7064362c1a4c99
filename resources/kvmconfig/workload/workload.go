// Package workload is the handler of the connection to the workload cluster.
package workload

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Forgetter ends connections to workload clusters.
type Forgetter interface {
	Forget(s *cluster.Snapshot)
}

// New returns the handler. The connection is established while the snapshot is gathered because the snapshot contains
// what it returns.
func New(f Forgetter) chain.Handler[*cluster.Snapshot] { return handler{f} }

type handler struct{ forgetter Forgetter }

// Name is the handler's name.
func (handler) Name() string { return "workload" }

// EnsureCreated waits until the API of the workload cluster answers. A change triggers a reconcile.
func (handler) EnsureCreated(_ context.Context, s *cluster.Snapshot) (chain.Outcome, error) {
	if s.Workload.Connected {
		return chain.Done(), nil
	}
	return chain.Wait(s.Workload.Reason, s.Workload.Message, 0), nil
}

// EnsureDeleted closes the connection. Nothing in the workload cluster has to be undone.
func (h handler) EnsureDeleted(_ context.Context, s *cluster.Snapshot) (chain.Outcome, error) {
	h.forgetter.Forget(s)
	return chain.Done(), nil
}
