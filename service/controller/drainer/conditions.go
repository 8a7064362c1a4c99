package drainer

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Store stores nothing, because the handlers write the condition of the pod. A refusal of the API server is an error
// here, because no condition can report it.
func (*Reconciler) Store(_ context.Context, _ Leaver, _ *drain.State, results []chain.Result) error {
	for _, r := range results {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// Store writes the controller's condition. On deletion, the cluster controller says what is waited for.
func (r *Endpoints) Store(ctx context.Context, config *v1alpha1.KVMConfig, _ *state.Cluster, results []chain.Result) error {
	if config.DeletionTimestamp != nil {
		return nil
	}
	return r.condition.Store(ctx, config, config.Status.Conditions, results)
}
