package virtualmachine

import (
	"context"
	"time"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/hold"
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
	engine  *apply.Engine
	clock   clock.PassiveClock
	refused hold.Held[growth, error]
}

// growth is what was requested of a claim.
type growth struct {
	claim         types.UID
	version, size string
}

func newGrower(e *apply.Engine, c clock.PassiveClock) *grower { return &grower{engine: e, clock: c} }

// Grow requests a larger size for a claim.
func (w *grower) Grow(ctx context.Context, g virtualmachine.Growth) error {
	what := growth{claim: g.Claim.UID, version: g.Claim.ResourceVersion, size: g.To.String()}
	if err, left := w.refused.Get(what, w.clock.Now()); left > 0 {
		return err
	}
	from := g.Claim.Spec.Resources.Requests[corev1.ResourceStorage]
	err := w.engine.SetField(ctx, g.Claim, "/spec/resources/requests/storage", from.String(), g.To.String())
	if apierrors.IsForbidden(err) {
		err = problem.Newf("ClaimNotGrown", "PersistentVolumeClaim %s has %s and cannot be grown to %s: %s. Set allowVolumeExpansion in its StorageClass, or declare its former size",
			g.Claim.Name, from.String(), g.To.String(), text.Beginning(microerror.Cause(err).Error(), maxRefusal))
		w.refused.Put(what, err, w.clock.Now(), refusedFor)
	}
	return err
}
