// Package vault is the handler of what Vault keeps for a cluster: when the cluster goes, its authorities do.
package vault

import (
	"context"

	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

// Revoker takes the authorities among the requests away, and with them all that they have signed.
type Revoker interface {
	Revoke(requests []pki.Request) error
}

// New makes the handler.
func New(r Revoker) chain.Handler[*cluster.Snapshot] { return handler{revoker: r} }

type handler struct{ revoker Revoker }

// Name is the handler's name.
func (handler) Name() string { return "vault" }

// EnsureCreated has nothing to do: authorities are made as certificates are gathered.
func (handler) EnsureCreated(context.Context, *cluster.Snapshot) (chain.Outcome, error) {
	return chain.Done(), nil
}

// EnsureDeleted takes the authorities away once every machine and every Secret is gone. Those of a cluster whose id is somebody else's
// are not its own.
func (h handler) EnsureDeleted(_ context.Context, s *cluster.Snapshot) (chain.Outcome, error) {
	if s.NamespaceTaken {
		return chain.Done(), nil
	}
	return chain.Done(), h.revoker.Revoke(cluster.CertificateRequests(s.Config, s.Settings))
}
