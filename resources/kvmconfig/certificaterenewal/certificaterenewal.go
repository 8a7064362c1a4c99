// Package certificaterenewal is the handler of key pairs that are due: those that expire, lack a name, or trust other
// CAs than their own CA does. It runs before boot data is written, so that no node is replaced twice for one change.
package certificaterenewal

import (
	"context"
	"errors"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Writer writes Secrets.
type Writer interface {
	Apply(ctx context.Context, set apply.Set) error
}

// New returns the handler.
func New(w Writer, issuer pki.Issuer) chain.Handler[*state.Cluster] { return &handler{w, issuer} }

type handler struct {
	writer Writer
	issuer pki.Issuer
}

// Name is the handler's name.
func (h *handler) Name() string { return "certificaterenewal" }

// EnsureCreated renews the pairs that are due. A pair that cannot be renewed stays in use, so this blocks no handler.
func (h *handler) EnsureCreated(ctx context.Context, s *state.Cluster) (chain.Outcome, error) {
	due := s.Validity.Renewals
	renewed, failed := pki.Renew(s.Certificates, s.Validity.Requests, due.Due, h.issuer, s.Now, s.Validity.Doubt)
	if len(renewed) == 0 {
		return chain.Done(), errors.Join(failed, due.Early)
	}
	set := apply.Set{Owner: s.Owner("certificates"), Places: s.Places(), CreateOnly: true}
	for _, name := range slices.Sorted(maps.Keys(renewed)) {
		set.Objects = append(set.Objects, client.Object(s.CertificateSecret(name, renewed[name], s.Validity.Versions[name])))
	}
	// Those that failed are still due in the next pass, and reported there.
	return chain.Again("certificates were renewed"), h.writer.Apply(ctx, set)
}

// EnsureDeleted does nothing because another handler owns the key pairs.
func (h *handler) EnsureDeleted(context.Context, *state.Cluster) (chain.Outcome, error) {
	return chain.Done(), nil
}
