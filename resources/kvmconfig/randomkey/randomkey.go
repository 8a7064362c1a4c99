// Package randomkey is the handler of the Secrets with the random keys of a cluster.
package randomkey

import (
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Source generates the random key of the given name.
type Source func(name string) (string, error)

// New returns the handler. Data is lost with its encryption key, so Secrets are created and never changed.
func New(source Source) apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{
		Handler: "randomkey", Kinds: []client.Object{&corev1.Secret{}}, CreateOnly: true,
		Build: func(s *state.Cluster) (apply.Desired, error) { return build(s, source) },
	}
}

// build returns a Secret for every key that is not adopted. It generates the keys that are missing.
func build(s *state.Cluster, source Source) (apply.Desired, error) {
	keys := maps.Clone(s.Keys)
	failed := s.KeysErr
	for _, name := range s.MissingKeys {
		value, err := source(name)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		keys[name] = value
	}
	var desired apply.Desired
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		if !s.Adopted[name] {
			desired.Objects = append(desired.Objects, secret(s, name, keys[name]))
		}
	}
	if len(keys) > len(s.Keys) {
		again := chain.Again("keys were generated")
		desired.Wait = &again
	}
	return desired, failed
}

func secret(s *state.Cluster, name, value string) *corev1.Secret {
	meta := s.Meta(key.SecretName(s.ID(), name), map[string]string{
		key.LabelRandomKey: name, key.LabelLegacyClusterID: s.ID(), key.LabelLegacyClusterKey: name,
	})
	meta.Namespace = s.Config.Namespace
	return &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{name: []byte(value)}}
}
