// Package addonhealth is the handler that waits until the add-ons of a workload cluster are available. An applied
// add-on need not work: if the image of the pod network cannot be pulled, no pod gets an address.
package addonhealth

import (
	"context"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// New returns the handler.
func New() chain.Handler[*state.Cluster] { return handler{} }

type handler struct{}

// Name is the handler's name.
func (handler) Name() string { return "addonhealth" }

// EnsureCreated waits until every DaemonSet and Deployment that the operator applied to the workload cluster is
// available. A change of their status triggers a reconcile.
func (handler) EnsureCreated(_ context.Context, s *state.Cluster) (chain.Outcome, error) {
	unavailable := addons.Unavailable(s.Workload.DaemonSets, s.Workload.Deployments)
	if len(unavailable) == 0 {
		return chain.Done(), nil
	}
	return chain.Wait("AddOnUnavailable", strings.Join(unavailable, "; ")+": kubectl describe their pods in the workload cluster", 0), nil
}

// EnsureDeleted does nothing because the handler creates nothing.
func (handler) EnsureDeleted(context.Context, *state.Cluster) (chain.Outcome, error) {
	return chain.Done(), nil
}
