// Package certificates is the handler of the Secrets with the key pairs of a cluster.
package certificates

import (
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// New returns the handler. A key cannot be recreated. So Secrets are created and never replaced here; the
// handler "certificaterotation" renews them.
func New(issuer pki.Issuer) apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{
		Handler: "certificates", Kinds: []client.Object{&corev1.Secret{}}, CreateOnly: true,
		Build: func(s *state.Cluster) (apply.Desired, error) { return build(s, issuer) },
	}
}

// build returns a Secret for every pair that is not adopted, CAs first: if a CA turns out to exist already, nothing
// that the new one signed may be written. It issues the pairs that are missing.
func build(s *state.Cluster, issuer pki.Issuer) (apply.Desired, error) {
	pairs := maps.Clone(s.Certificates)
	fresh, err := pki.Missing(s.Certificates, s.Validity.Requests, issuer, s.Now)
	maps.Copy(pairs, fresh)
	var desired apply.Desired
	names := slices.Sorted(maps.Keys(pairs))
	leaves := slices.DeleteFunc(names, func(name string) bool { return slices.Contains(pki.Authorities, name) })
	for _, name := range slices.Concat(pki.Authorities, leaves) {
		pair, ok := pairs[name]
		if !ok || s.Adopted[name] {
			continue
		}
		secret := s.CertificateSecret(name, pair, "")
		if slices.Contains(pki.Authorities, name) {
			// The generation counts when the Secret is created.
			s.MarkGeneration(secret)
		}
		desired.Objects = append(desired.Objects, secret)
	}
	if len(fresh) > 0 {
		// Also if another party created a Secret in the meantime.
		again := chain.Again("key pairs were issued")
		desired.Wait = &again
	}
	return desired, errors.Join(s.CertificatesErr, err)
}
