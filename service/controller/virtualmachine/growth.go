package virtualmachine

import (
	"context"
	"sync"
	"time"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

const (
	// refusedFor is how long a growth that the API server refused is not requested again, unless the claim or the size
	// changes. A StorageClass or a quota that changes says nothing to the operator.
	refusedFor = 5 * time.Minute
	// maxRefusal bounds what is repeated of a refusal by the API server, in bytes.
	maxRefusal = 300
)

// grower makes claims larger.
type grower struct {
	engine *apply.Engine
	clock  clock.PassiveClock

	mu      sync.Mutex
	refused map[types.UID]refusal
}

// refusal is a growth that the API server refused.
type refusal struct {
	version, size string
	err           error
	until         time.Time
}

func newGrower(e *apply.Engine, c clock.PassiveClock) *grower {
	return &grower{engine: e, clock: c, refused: map[types.UID]refusal{}}
}

// Grow requests a larger size for a claim.
func (w *grower) Grow(ctx context.Context, g virtualmachine.Growth) error {
	if err := w.known(g); err != nil {
		return err
	}
	from := g.Claim.Spec.Resources.Requests[corev1.ResourceStorage]
	err := w.engine.SetField(ctx, g.Claim, "/spec/resources/requests/storage", from.String(), g.To.String())
	if apierrors.IsForbidden(err) {
		err = problem.Newf("ClaimNotGrown", "PersistentVolumeClaim %s has %s and cannot be grown to %s: %s. Set allowVolumeExpansion in its StorageClass, or declare its former size",
			g.Claim.Name, from.String(), g.To.String(), text.Beginning(microerror.Cause(err).Error(), maxRefusal))
		w.note(g, err)
	}
	return err
}

// known returns the error of the same growth a moment ago.
func (w *grower) known(g virtualmachine.Growth) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, ok := w.refused[g.Claim.UID]
	if ok && r.version == g.Claim.ResourceVersion && r.size == g.To.String() && w.clock.Now().Before(r.until) {
		return r.err
	}
	delete(w.refused, g.Claim.UID)
	return nil
}

func (w *grower) note(g virtualmachine.Growth, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	for uid, r := range w.refused {
		if !now.Before(r.until) {
			delete(w.refused, uid)
		}
	}
	w.refused[g.Claim.UID] = refusal{g.Claim.ResourceVersion, g.To.String(), err, now.Add(refusedFor)}
}
