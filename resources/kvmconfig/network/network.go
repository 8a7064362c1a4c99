// Package network is the handler that rejects networks that would misroute packets.
package network

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// Handler compares the cluster's networks with the configured networks of the management cluster. A conflict does not
// affect what runs, but no machine is created or changed.
type Handler struct{}

// Name is the handler's name.
func (Handler) Name() string { return "network" }

// EnsureCreated returns a problem while networks overlap.
func (Handler) EnsureCreated(_ context.Context, s *state.Cluster) (chain.Outcome, error) {
	c := s.Cluster()
	own := []addons.Network{
		{Name: "the pod network of spec.cluster.calico", CIDR: key.PodNetwork(c)},
		{Name: "the service network of spec.cluster.kubernetes.api.clusterIPRange", CIDR: c.Kubernetes.API.ClusterIPRange},
	}
	var others []addons.Network
	for _, cidr := range s.Settings.PodCIDRs {
		others = append(others, addons.Network{Name: "a pod network of the management cluster", CIDR: cidr})
	}
	for _, cidr := range s.Settings.ServiceCIDRs {
		others = append(others, addons.Network{Name: "a service network of the management cluster", CIDR: cidr})
	}
	if conflict := addons.Overlap(own, others); conflict != "" {
		return chain.Outcome{}, problem.Newf("NetworkConflict", "%s", conflict)
	}
	return chain.Done(), nil
}

// EnsureDeleted does nothing.
func (Handler) EnsureDeleted(context.Context, *state.Cluster) (chain.Outcome, error) {
	return chain.Done(), nil
}
