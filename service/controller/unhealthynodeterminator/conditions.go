package unhealthynodeterminator

import (
	"context"
	"slices"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/workload"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Store writes the controller's condition. While the workload cluster is not reached, the only news is that nothing is
// replaced. An operator that has just started waits for the first attempt to reach it, which wakes the controller.
func (r *Reconciler) Store(
	ctx context.Context, config *v1alpha1.KVMConfig, m *state.Machines, results []chain.Result,
) error {
	waits := slices.ContainsFunc(results, func(r chain.Result) bool { return !r.Done() })
	connecting := m.Workload.Reason == string(workload.Connecting)
	if r.Workloads != nil && !m.Workload.Connected && (connecting || !waits) {
		return nil
	}
	return r.condition.Store(ctx, config, config.Status.Conditions, results)
}
