// Package workload is the handler of the connection to the workload cluster.
package workload

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
)

// Forgetter ends connections to workload clusters.
type Forgetter interface {
	Forget(s *cluster.Snapshot)
}

// New makes the handler. The connection is made where snapshots are gathered, for they are made of what it tells.
func New(f Forgetter) chain.Handler[*cluster.Snapshot] { return handler{f} }

type handler struct{ forgetter Forgetter }

// Name is the handler's name.
func (handler) Name() string { return "workload" }

// EnsureCreated waits until the API of the workload cluster answers. A change wakes the controller.
func (handler) EnsureCreated(_ context.Context, s *cluster.Snapshot) (chain.Outcome, error) {
	if s.Workload.Connected {
		return chain.Done(), nil
	}
	return chain.Wait(s.Workload.Reason, s.Workload.Message, 0), nil
}

// EnsureDeleted drops the connection; nothing in the workload cluster has to be undone.
func (h handler) EnsureDeleted(_ context.Context, s *cluster.Snapshot) (chain.Outcome, error) {
	h.forgetter.Forget(s)
	return chain.Done(), nil
}
