package observe

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// Workloads are the connections to the workload clusters, which the cluster controller creates.
type Workloads interface {
	// Seen returns what is known of a workload cluster.
	Seen(name types.NamespacedName) state.Workload
	// EngineOf returns the engine that writes to a workload cluster; nil while the cluster cannot be reached.
	EngineOf(name types.NamespacedName) *apply.Engine
	// Source wakes a controller when a workload cluster changes.
	Source() source.Source
}

// Follower is what the controllers share that follow the Nodes of workload clusters.
type Follower struct {
	// Client reads from informers and writes to the API server; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Settings are the operator's.
	Settings state.Settings
	// Workloads is nil if the operator does not connect to workload clusters: then the controller only removes its
	// finalizer.
	Workloads Workloads
	Clock     clock.PassiveClock
	// Outdated returns what the definition of a kind lacks: nothing is reconciled then. Nil if the definitions are
	// known to be current.
	Outdated func(ctx context.Context) string
}

// Reader returns the reader of the management cluster.
func (f *Follower) Reader() Reader { return Reader{Cached: f.Client, Live: f.Live} }

// Gather reads the machines of a cluster and the Nodes of its workload cluster.
func (f *Follower) Gather(ctx context.Context, config *v1alpha1.KVMConfig) (*state.Machines, error) {
	var seen state.Workload
	if f.Workloads != nil && config.DeletionTimestamp == nil {
		seen = f.Workloads.Seen(client.ObjectKeyFromObject(config))
	}
	return f.Reader().Machines(ctx, config, f.Settings, seen)
}

// Again returns when the chain wants to run again.
func (*Follower) Again(_ *state.Machines, after time.Duration) time.Duration { return after }
