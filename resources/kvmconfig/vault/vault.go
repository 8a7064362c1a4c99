// Package vault is the handler of what Vault keeps for a cluster. Its CAs are removed with the cluster.
package vault

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Revoker removes the CAs among the requests, and with them everything that they have signed.
type Revoker interface {
	Revoke(requests []pki.Request) error
}

// New returns the handler.
func New(r Revoker) chain.Handler[*state.Cluster] { return handler{revoker: r} }

type handler struct{ revoker Revoker }

// Name is the handler's name.
func (handler) Name() string { return "vault" }

// EnsureCreated does nothing because CAs are created while certificates are gathered.
func (handler) EnsureCreated(context.Context, *state.Cluster) (chain.Outcome, error) {
	return chain.Done(), nil
}

// EnsureDeleted removes the CAs once every machine and every Secret is gone. A cluster whose id belongs to another
// cluster does not own those CAs.
func (h handler) EnsureDeleted(_ context.Context, s *state.Cluster) (chain.Outcome, error) {
	if s.NamespaceTaken {
		return chain.Done(), nil
	}
	return chain.Done(), h.revoker.Revoke(state.CertificateRequests(s.Config, s.Settings))
}
