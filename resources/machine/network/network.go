// Package network is the handler that waits for the networks of a Machine. The controller of NetworkConfigurations creates
// what is needed.
package network

import (
	"context"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// Name is the handler's name.
const Name = "network"

// Handler only looks.
type Handler struct{}

// Name is the handler's name.
func (Handler) Name() string { return Name }

// EnsureCreated is Done when every NetworkConfiguration of the Machine exists, with its NetworkAttachmentDefinition.
func (Handler) EnsureCreated(_ context.Context, s *vitistack.State) (chain.Outcome, error) {
	if err := s.NetworkRefusal(); err != nil {
		return chain.Outcome{}, err
	}
	if pending := s.PendingNetworks(); len(pending) > 0 {
		return chain.Wait(v1alpha1.ReasonPending, "waits for the NetworkAttachmentDefinition of "+named(s, pending), 0), nil
	}
	done := chain.Done()
	done.Reason = v1alpha1.ReasonNetworkConfigured
	return done, nil
}

// EnsureDeleted is Done when no NetworkConfiguration of the Machine lists it.
func (Handler) EnsureDeleted(_ context.Context, s *vitistack.State) (chain.Outcome, error) {
	if referring := s.Referring(); len(referring) > 0 {
		return chain.Wait(v1alpha1.ReasonTerminating, "waits until the Machine is no longer in the status of "+named(s, referring), 0), nil
	}
	return chain.Done(), nil
}

func named(s *vitistack.State, networks []string) string {
	return "NetworkConfiguration " + s.Machine.Namespace + "/" + strings.Join(networks, ", "+s.Machine.Namespace+"/")
}
