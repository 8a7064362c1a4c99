package deleter

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Store writes the controller's condition. While the workload cluster is not reached, nothing is known that is newer than
// what is stored.
func (r *Reconciler) Store(ctx context.Context, config *v1alpha1.KVMConfig, m *state.Machines, results []chain.Result) error {
	if r.Workloads != nil && !m.Workload.Connected {
		return nil
	}
	return r.condition.Store(ctx, config, config.Status.Conditions, results)
}
