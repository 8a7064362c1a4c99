// Package endpoint is the handler that keeps a node pod from being drained as long as Services send it traffic.
package endpoint

import (
	"context"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

const (
	// patience is how long a pod is waited for. After that the drain begins, because a slice that cannot be written must
	// not keep a machine from being drained.
	patience = 5 * time.Second
	// again is when the slices are checked without an event.
	again = 250 * time.Millisecond
)

type handler struct{}

// New returns the handler.
func New() chain.Handler[*drain.State] { return handler{} }

// Name returns the handler's name.
func (handler) Name() string { return "endpoint" }

// EnsureCreated waits until the pod is in no EndpointSlice, or is marked there as terminating, for five seconds at most.
func (handler) EnsureCreated(_ context.Context, s *drain.State) (chain.Outcome, error) {
	m := s.Machine
	// A pod that is not deleted is not drained: only its condition is corrected.
	hurries := s.Unowned || s.Pod.DeletionTimestamp == nil || m.Stopped || m.Released != "" || m.Unconditional() || m.Waited >= patience
	if !hurries && slices.ContainsFunc(s.Slices, func(slice discoveryv1.EndpointSlice) bool { return gets(slice, s) }) {
		return chain.Wait("GetsTraffic", "waits until no Service sends traffic to the pod", again), nil
	}
	return chain.Done(), nil
}

// EnsureDeleted is never called, because the chain always runs forward.
func (handler) EnsureDeleted(context.Context, *drain.State) (chain.Outcome, error) {
	return chain.Done(), nil
}

// gets returns whether the pod gets traffic by a slice. The slices of members have a pod as long as its machine runs.
func gets(slice discoveryv1.EndpointSlice, s *drain.State) bool {
	if !slices.Contains([]string{key.RoleMaster, key.RoleWorker, key.PublishedService}, slice.Labels[key.LabelServiceName]) {
		return false
	}
	return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
		terminating := e.Conditions.Terminating != nil && *e.Conditions.Terminating
		return e.TargetRef != nil && e.TargetRef.UID == s.Pod.UID && !terminating
	})
}
