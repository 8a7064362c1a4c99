// Package networkconfiguration is the controller of NetworkConfigurations. It is the only one that makes
// NetworkAttachmentDefinitions, and that writes which Machines are attached: many Machines share one network.
package networkconfiguration

import (
	"context"
	"time"

	"github.com/giantswarm/microerror"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/late"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// Name of the controller.
const Name = "networkconfiguration"

// reconcileTimeout bounds one pass over one NetworkConfiguration.
const reconcileTimeout = time.Minute

// IndexNetwork finds Machines by the names of the NetworkConfigurations that their specs name.
const IndexNetwork = "spec.networks.networkName"

// Reconciler reconciles NetworkAttachmentDefinitions and the status of NetworkConfigurations.
type Reconciler struct {
	// Machines reads Machines from a cache with IndexNetwork.
	Machines client.Reader
	// Networks is the session of NetworkConfigurations, and Multus that of NetworkAttachmentDefinitions.
	Networks, Multus *late.Session
	Settings         vitistack.Settings
	// Interval is how often each NetworkConfiguration is reconciled without an event.
	Interval time.Duration
	Clock    clock.PassiveClock
	// Outdated returns what the definitions lack: nothing is reconciled then.
	Outdated func(ctx context.Context) string

	reconciler.Loop[*v1alpha1.NetworkConfiguration, *vitistack.NetworkState]

	wake reconciler.Waker
}

// Init creates the chain. It fails if the chain is inconsistent.
func (r *Reconciler) Init() error {
	r.Loop = reconciler.Loop[*v1alpha1.NetworkConfiguration, *vitistack.NetworkState]{
		Name: Name, Controller: r, Outdated: r.Outdated,
		Chain: newChain(func() *apply.Engine { return r.Multus.View().Engine }),
	}
	return microerror.Mask(r.Chain.Validate())
}

// Get returns the NetworkConfiguration of a request. One that is being deleted is left to the garbage collector.
func (r *Reconciler) Get(ctx context.Context, request reconcile.Request) (*v1alpha1.NetworkConfiguration, bool, error) {
	networks := r.Networks.View()
	if networks.State != late.Installed {
		return nil, false, nil
	}
	network := &v1alpha1.NetworkConfiguration{}
	if err := networks.Reader.Get(ctx, request.NamespacedName, network); err != nil {
		return nil, false, microerror.Mask(client.IgnoreNotFound(err))
	}
	return network, network.DeletionTimestamp == nil, nil
}

// Again returns when to look again without an event.
func (r *Reconciler) Again(_ *vitistack.NetworkState, after time.Duration) time.Duration {
	return reconciler.Sooner(after, reconciler.Jitter(r.Interval))
}

// Wake makes the controller run for all NetworkConfigurations, once it has been started.
func (r *Reconciler) Wake() {
	networks := r.Networks.View()
	if networks.State == late.Installed {
		r.wake.All(networks.Reader, &v1alpha1.NetworkConfigurationList{})
	}
}
