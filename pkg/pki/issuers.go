package pki

import "github.com/kvm-operator/kvm-operator/pkg/problem"

// Issuers choose who issues a pair: new authorities come from Vault where it is set up, and every authority signs where its key is.
type Issuers struct {
	// Embedded signs with keys that stand in Secrets.
	Embedded Issuer
	// Vault signs with keys that Vault keeps; nil where none is set up.
	Vault Issuer
}

// Issue has the right one issue a pair.
func (i Issuers) Issue(request Request, authority KeyPair) (KeyPair, error) {
	switch {
	case request.Usage == UsageAuthority && i.Vault != nil, authority.Vault != "" && i.Vault != nil:
		return i.Vault.Issue(request, authority)
	case authority.Vault != "":
		return KeyPair{}, problem.Newf("VaultMissing", "authority %q is in Vault at %q, and the operator is not told where Vault is; set service.vault.address",
			request.Authority, authority.Vault)
	default:
		return i.Embedded.Issue(request, authority)
	}
}
