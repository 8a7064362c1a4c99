package state

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// authoritiesOf returns the common names of the CAs among the requests, by name.
func authoritiesOf(requests []pki.Request) map[string]string {
	names := map[string]string{}
	for _, request := range requests {
		if request.Usage == pki.UsageAuthority {
			names[request.Name] = request.CommonName
		}
	}
	return names
}

// checkVault rejects a pair that names an issuer in Vault which cannot be that of this cluster's CA: the operator may
// sign with the keys of all clusters, and a Secret must not choose another cluster's. commonName is empty for pairs
// that are not CAs.
func checkVault(secret *corev1.Secret, pair pki.KeyPair, commonName string) error {
	for name, path := range map[string]string{secretKeyVault: pair.Vault, secretKeyNextVault: pair.NextVault} {
		if path != "" && !pki.IssuerOf(path, commonName) {
			return problem.Newf("SecretMalformed", "Secret %s/%s: key %q does not name an issuer of this cluster's CA in Vault; remove the key, "+
				"or delete the Secret to get a new CA", secret.Namespace, secret.Name, name)
		}
	}
	return nil
}
