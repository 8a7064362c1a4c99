// Package release is the handler that reports whether the versions of a cluster are known and supported, and whether
// the cluster may change to them from its current versions.
package release

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Handler reports on the versions that were planned. Handlers that need versions use those of the state, which are the current
// ones while a change is rejected or waits.
type Handler struct{}

// Name is the handler's name.
func (Handler) Name() string { return "release" }

// EnsureCreated reports on the planned versions, which are in the next status. For a running cluster they are stored
// before any node changes to them. Otherwise an operator that restarts in between would not know which change had begun,
// and the change could be reverted as if no master had been changed.
func (Handler) EnsureCreated(_ context.Context, s *state.Cluster) (chain.Outcome, error) {
	if s.VersionsErr != nil {
		return chain.Outcome{}, s.VersionsErr
	}
	before := s.Config.Status.Versions
	switch {
	case s.VersionsRefused != nil:
		return chain.Outcome{}, s.VersionsRefused
	case before != nil && *before != s.Versions:
		return chain.Store("the versions of the cluster change"), nil
	case s.VersionsWait != "":
		return chain.Wait("MastersNotReady", s.VersionsWait, 0), nil
	}
	return chain.Done(), nil
}

// EnsureDeleted does nothing because a cluster can be deleted without its Release.
func (Handler) EnsureDeleted(context.Context, *state.Cluster) (chain.Outcome, error) {
	return chain.Done(), nil
}
