// Package disks is the handler that grows and reports the claims of a virtual machine. Its StatefulSet creates them, and
// the operator deletes none.
package disks

import (
	"context"
	"errors"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// Grower makes claims larger.
type Grower interface {
	// Grow requests a larger size for a claim. A claim that cannot grow is a problem.
	Grow(ctx context.Context, g virtualmachine.Growth) error
}

// New returns the handler.
func New(g Grower) chain.Handler[*virtualmachine.State] { return handler{g} }

type handler struct{ grower Grower }

// Name is the handler's name.
func (handler) Name() string { return "disks" }

// EnsureCreated makes claims larger, and waits until every claim is bound and as large as it is to be. A stopped machine
// does not need its claims.
func (h handler) EnsureCreated(ctx context.Context, s *virtualmachine.State) (chain.Outcome, error) {
	if foreign := s.ForeignClaims(); len(foreign) > 0 {
		return chain.Outcome{}, problem.Newf("ClaimOfOther",
			"PersistentVolumeClaim %s does not belong to this machine: it lacks the label %s=%s. The machine is not started; rename the disk, or label the claim",
			strings.Join(foreign, ", "), virtualmachine.LabelInstance, s.VM.Name)
	}
	if former := s.FormerClaims(); len(former) > 0 {
		return chain.Outcome{}, problem.Newf("FormerClaim",
			"PersistentVolumeClaim %s has a disk of this machine from VM-Operator, and the machine would get an empty one. It is not started: give the volume to the new claim (docs/upgrading.md, Coming from VM-Operator), or remove the label %s from the old one",
			strings.Join(former, ", "), virtualmachine.LabelInstance)
	}
	var errs []error
	for _, g := range s.Growths() {
		errs = append(errs, h.grower.Grow(ctx, g))
	}
	if err := errors.Join(errs...); err != nil {
		return chain.Outcome{}, err
	}
	waits := s.Pending()
	switch growing := s.Growing(); {
	case len(waits) == 0 && len(growing) > 0:
		return chain.Wait("ClaimGrowing", strings.Join(growing, "; "), 0), nil
	case len(waits) == 0:
		return chain.Done(), nil
	case !s.Wanted():
		return chain.NotConfigured(), nil
	}
	return chain.Wait("ClaimPending", strings.Join(waits, "; "), 0), nil
}

// EnsureDeleted does nothing because claims are kept.
func (handler) EnsureDeleted(context.Context, *virtualmachine.State) (chain.Outcome, error) {
	return chain.Done(), nil
}
