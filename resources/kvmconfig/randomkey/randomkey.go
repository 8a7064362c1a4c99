// Package randomkey is the handler of the Secrets with the random keys of a cluster.
package randomkey

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// New returns the handler. Data is lost with its encryption key, so Secrets are created and never changed.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{
		Handler: "randomkey", Kinds: []client.Object{&corev1.Secret{}}, Build: build, CreateOnly: true,
	}
}

func build(s *state.Cluster) (apply.Desired, error) {
	var desired apply.Desired
	for _, name := range slices.Sorted(maps.Keys(s.Keys)) {
		if !s.Adopted[name] {
			desired.Objects = append(desired.Objects, secret(s, name))
		}
	}
	return desired, s.KeysErr
}

func secret(s *state.Cluster, name string) *corev1.Secret {
	meta := s.Meta(key.SecretName(s.ID(), name), map[string]string{
		key.LabelRandomKey: name, key.LabelLegacyClusterID: s.ID(), key.LabelLegacyClusterKey: name,
	})
	meta.Namespace = s.Config.Namespace
	return &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{name: []byte(s.Keys[name])}}
}
