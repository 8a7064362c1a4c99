package plan

import (
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// secrets adds what the Secrets say: key pairs, keys, and which of them are missing or due.
func secrets(s *state.Cluster, o Observed) {
	requests := state.CertificateRequests(s.Config, s.Settings)
	found := state.ReadSecrets(o.Secrets, s.Config, s.Settings.AdoptFrom, requests)
	// Nodes without the condition may be those of giantswarm/kvm-operator, whose keys still have to be handed over.
	if len(o.Deployments) > 0 && meta.FindStatusCondition(s.Config.Status.Conditions, state.ConditionCertificates) != nil {
		found.Lose(s.ID(), s.Config.Namespace, requests)
	}
	s.Certificates, s.CertificatesErr, s.Adopted = requested(found.Pairs, requests), found.PairsErr, found.Adopted
	requests = found.Requests(requests)
	s.Keys, s.KeysErr, s.MissingKeys = found.Keys, found.KeysErr, found.MissingKeys()
	s.KubeconfigOf = kubeconfigOf(s, o.Secrets)
	if o.Rendering {
		fill(s, requests)
	}
	if seed, ok := s.Keys[state.KeyBootstrapToken]; ok {
		s.Tokens = joining.TokensAt(seed, s.Now)
	}
	s.Validity = state.Validity{
		Requests: requests, Renewals: pki.RenewalsOf(s.Certificates, requests, s.Now), Versions: found.Versions, Generations: found.Generations, Doubt: o.Doubt,
	}
}

// requested returns the pairs that the cluster still needs. A pair that it no longer needs, such as that of a removed
// member of etcd, is neither trusted nor renewed.
func requested(pairs pki.Set, requests []pki.Request) pki.Set {
	needed := pki.Set{}
	for _, request := range requests {
		if pair, exists := pairs[request.Name]; exists {
			needed[request.Name] = pair
		}
	}
	return needed
}

// fill adds placeholders for what does not exist.
func fill(s *state.Cluster, requests []pki.Request) {
	for range 2 { // CAs, then what they sign
		placeholders, err := pki.Missing(s.Certificates, requests, pki.Placeholder{}, s.Now)
		maps.Copy(s.Certificates, placeholders)
		s.CertificatesErr = errors.Join(s.CertificatesErr, err)
	}
	for _, name := range s.MissingKeys {
		s.Keys[name] = pki.PlaceholderKey(name)
	}
	s.MissingKeys = nil
}

// kubeconfigOf returns the group of the stored administrator kubeconfig; nil if there is none.
func kubeconfigOf(s *state.Cluster, secrets []corev1.Secret) *string {
	at := types.NamespacedName{Namespace: s.Namespace(), Name: key.KubeconfigName(s.ID())}
	i := slices.IndexFunc(secrets, func(secret corev1.Secret) bool {
		return types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name} == at
	})
	if i < 0 {
		return nil
	}
	return new(secrets[i].Annotations[key.AnnotationAdministrators])
}
