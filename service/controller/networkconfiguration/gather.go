package networkconfiguration

import (
	"context"

	"github.com/giantswarm/microerror"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// Gather reads the Machines on the network, from the cache.
func (r *Reconciler) Gather(ctx context.Context, network *v1alpha1.NetworkConfiguration) (*vitistack.NetworkState, error) {
	s := &vitistack.NetworkState{Network: network, Settings: r.Settings, Multus: vitistack.KubeVirt(r.Multus.View().State), Now: r.Clock.Now()}
	var machines v1alpha1.MachineList
	if err := r.Machines.List(ctx, &machines, client.InNamespace(network.Namespace), client.MatchingFields{IndexNetwork: network.Name}); err != nil {
		return nil, microerror.Mask(err)
	}
	s.Machines = machines.Items
	return s, nil
}
