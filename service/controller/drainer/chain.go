package drainer

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/endpoint"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/endpoints"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/pod"
)

// newPodChain returns the ordered handlers of a node pod that is about to end.
func newPodChain(d pod.Drainer) chain.Chain[*drain.State] {
	return chain.Chain[*drain.State]{
		// No pod is evicted from a node, and no machine is shut down, while Services send traffic to it.
		{Handler: endpoint.New()},
		{Handler: pod.New(d), Needs: []string{"endpoint"}},
	}
}

// newEndpointsChain returns the handlers of what is behind the Services of a cluster.
func newEndpointsChain(e *apply.Engine) chain.Chain[*state.Cluster] {
	return chain.Chain[*state.Cluster]{{Handler: inNamespace{endpoints.New().Handle(e)}}}
}

// inNamespace runs a handler only while the cluster's namespace exists and stays. When the cluster is deleted, it
// deletes what the handler has created.
type inNamespace struct {
	chain.Handler[*state.Cluster]
}

// Declared returns the resource.
func (inNamespace) Declared() apply.Resource[*state.Cluster] { return endpoints.New() }

// EnsureCreated runs the handler, or has nothing to report.
func (h inNamespace) EnsureCreated(ctx context.Context, s *state.Cluster) (chain.Outcome, error) {
	switch {
	case !s.OwnsNamespace || s.NamespaceGoes:
		return chain.NotConfigured(), nil
	case s.Config.DeletionTimestamp != nil:
		return h.EnsureDeleted(ctx, s)
	}
	return h.Handler.EnsureCreated(ctx, s)
}
