// Package certificates is the handler of the Secrets with the key pairs of a cluster.
package certificates

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// New returns the handler. A key cannot be created a second time. So Secrets are created, and replaced only when a pair
// was renewed from the version that was read.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{
		Handler: "certificates", Kinds: []client.Object{&corev1.Secret{}}, Build: build, CreateOnly: true,
	}
}

// build returns a Secret for every pair that is not adopted, CAs first. If a CA turns out to exist already, nothing
// that the new one signed may be written.
func build(s *state.Cluster) (apply.Desired, error) {
	var desired apply.Desired
	names := slices.Sorted(maps.Keys(s.Certificates))
	leaves := slices.DeleteFunc(names, func(name string) bool { return slices.Contains(pki.Authorities, name) })
	for _, name := range slices.Concat(pki.Authorities, leaves) {
		pair, ok := s.Certificates[name]
		if !ok || s.Adopted[name] {
			continue
		}
		version := ""
		if _, renewed := s.Terms.Renewed[name]; renewed {
			version = s.Terms.Versions[name]
		}
		secret := s.CertificateSecret(name, pair, version)
		if slices.Contains(pki.Authorities, name) {
			// The generation counts when the Secret is created.
			s.MarkGeneration(secret)
		}
		desired.Objects = append(desired.Objects, secret)
	}
	return desired, s.CertificatesErr
}
