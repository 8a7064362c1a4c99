package machine

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// Store writes the status if it differs, details a moment after they were seen.
func (r *Reconciler) Store(ctx context.Context, m *v1alpha1.Machine, s *vitistack.State, results []chain.Result) error {
	if apply.OnlyOutdated(results) {
		return nil // the status would be about objects that have changed
	}
	updated := m.DeepCopy()
	updated.Status = vitistack.Status(s, results)
	name := client.ObjectKeyFromObject(m)
	if !vitistack.Substantive(m.Status, updated.Status) {
		r.pace.rest(name)
		return nil
	}
	if r.pace.waits(name, &m.Status, &updated.Status, r.Clock.Now()) {
		return nil
	}
	stored, err := r.engine.UpdateStatus(ctx, updated)
	if stored {
		r.tell(ctx, m, updated, s, results)
	}
	if apierrors.IsConflict(err) {
		return err
	}
	return r.failed(err)
}
