package state_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// TestSecretsThatNameAnothersIssuerAreMalformed: the operator's token can sign at the mounts of all clusters.
func TestSecretsThatNameAnothersIssuerAreMalformed(t *testing.T) {
	requests := []pki.Request{
		{Name: "ca", CommonName: "kubernetes-ab1cd"}, {Name: "api", Authority: "ca", CommonName: "api.ab1cd", Usage: pki.UsageBoth},
	}
	const own, anothers = "pki-kubernetes-ab1cd/issuer/default", "pki-kubernetes-victm/issuer/default"
	// next sets the successor of a Secret in Vault.
	next := func(path string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Data["next.crt"], s.Data["next.vault"] = s.Data["crt"], []byte(path) }
	}
	for name, test := range map[string]struct {
		secret  corev1.Secret
		refused bool
	}{
		"adopted, of its own mount":           {certificateSecret(t, "default", "ca", "", data("vault", own)), false},
		"own, of its own mount":               {certificateSecret(t, "default", "ca", certificateOwner, data("vault", own)), false},
		"adopted, of another's":               {certificateSecret(t, "default", "ca", "", data("vault", anothers)), true},
		"own, of another's":                   {certificateSecret(t, "default", "ca", certificateOwner, data("vault", anothers)), true},
		"adopted, by a way up":                {certificateSecret(t, "default", "ca", "", data("vault", "pki-kubernetes-ab1cd/issuer/../../sys/x")), true},
		"adopted, its successor is its own":   {certificateSecret(t, "default", "ca", "", next(own)), false},
		"adopted, its successor is another's": {certificateSecret(t, "default", "ca", "", next(anothers)), true},
		"a pair that is no authority":         {certificateSecret(t, "default", "api", "", data("vault", own)), true},
	} {
		t.Run(name, func(t *testing.T) {
			read := state.ReadSecrets([]corev1.Secret{test.secret}, kvmConfig(), nil, requests)
			p, ok := problem.As(read.PairsErr)
			if refused := ok && p.Reason == "SecretMalformed"; refused != test.refused || refused == (len(read.Pairs) == 1) {
				t.Errorf("refused: %t with %d pairs, %v; want %t", refused, len(read.Pairs), read.PairsErr, test.refused)
			}
		})
	}
}
