// Package certificates is the handler of the Secrets with the key pairs of a cluster.
package certificates

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

// New makes the handler. A key cannot be made a second time, so Secrets are created and never changed.
func New() apply.Resource[*cluster.Snapshot] {
	return apply.Resource[*cluster.Snapshot]{
		Handler: "certificates", Kinds: []client.Object{&corev1.Secret{}}, Build: build, CreateOnly: true,
	}
}

// build returns a Secret for every pair that is not adopted, authorities first: when an authority turns out to exist,
// nothing may be written that was signed by the one just made.
func build(s *cluster.Snapshot) (apply.Desired, error) {
	var desired apply.Desired
	names := slices.Sorted(maps.Keys(s.Certificates))
	authorities := []string{pki.CA, pki.EtcdCA, pki.FrontProxyCA}
	leaves := slices.DeleteFunc(names, func(name string) bool { return slices.Contains(authorities, name) })
	for _, name := range append(authorities, leaves...) {
		if pair, ok := s.Certificates[name]; ok && !s.Adopted[name] {
			desired.Objects = append(desired.Objects, secret(s, name, pair))
		}
	}
	return desired, s.CertificatesErr
}

func secret(s *cluster.Snapshot, name string, pair pki.KeyPair) *corev1.Secret {
	meta := s.Meta(key.SecretName(s.ID(), name), map[string]string{key.LabelCertificate: name})
	meta.Namespace = s.Config.Namespace
	return &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{
		cluster.SecretKeyCA: pair.CA, cluster.SecretKeyCertificate: pair.Certificate, cluster.SecretKeyKey: pair.Key,
	}}
}
