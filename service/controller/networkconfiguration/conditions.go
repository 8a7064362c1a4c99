package networkconfiguration

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// Store writes the status if it differs.
func (r *Reconciler) Store(ctx context.Context, network *v1alpha1.NetworkConfiguration, s *vitistack.NetworkState, results []chain.Result) error {
	engine := r.Networks.View().Engine
	if engine == nil || s.Multus == vitistack.Unknown && vitistack.Attaches(network) || apply.OnlyOutdated(results) {
		return nil // the next pass knows more, and begins soon
	}
	updated := network.DeepCopy()
	updated.Status = vitistack.NetworkStatus(network, s.Machines, results, s.Now)
	if equality.Semantic.DeepEqual(network.Status, updated.Status) {
		return nil
	}
	stored, err := engine.UpdateStatus(ctx, updated)
	if stored {
		tell(ctx, network, updated)
	}
	return err
}

// tell logs what has changed.
func tell(ctx context.Context, before, after *v1alpha1.NetworkConfiguration) {
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionAttachmentReady)
	is := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionAttachmentReady)
	if is != nil && (was == nil || was.Status != is.Status || was.Reason != is.Reason) {
		log.FromContext(ctx).Info("condition changed", "type", is.Type, "status", is.Status, "reason", is.Reason, "cause", is.Message)
	}
}
