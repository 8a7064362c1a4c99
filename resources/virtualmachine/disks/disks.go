// Package disks is the handler that reports the claims of a virtual machine. Its StatefulSet creates them, and
// the operator deletes none.
package disks

import (
	"context"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// Handler reports claims that are not bound.
type Handler struct{}

// Name is the handler's name.
func (Handler) Name() string { return "disks" }

// EnsureCreated waits until every claim is bound. A stopped machine does not need its claims.
func (Handler) EnsureCreated(_ context.Context, s *virtualmachine.State) (chain.Outcome, error) {
	if foreign := s.ForeignClaims(); len(foreign) > 0 {
		return chain.Outcome{}, problem.Newf("ClaimOfOther",
			"PersistentVolumeClaim %s is not of this machine: it lacks the label %s=%s. The machine is not started with it; name the disk otherwise, or label the claim",
			strings.Join(foreign, ", "), virtualmachine.LabelInstance, s.VM.Name)
	}
	waits := s.Pending()
	switch {
	case len(waits) == 0:
		return chain.Done(), nil
	case !s.Wanted():
		return chain.NotConfigured(), nil
	}
	return chain.Wait("ClaimPending", strings.Join(waits, "; "), 0), nil
}

// EnsureDeleted does nothing because claims are kept.
func (Handler) EnsureDeleted(context.Context, *virtualmachine.State) (chain.Outcome, error) {
	return chain.Done(), nil
}
