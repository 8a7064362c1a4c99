package pki

import "github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"

// Issuers selects the issuer of a pair: Vault, if it is configured, issues new CAs, and every other pair is signed
// where the key of its CA is.
type Issuers struct {
	// Embedded signs with CA keys that are kept in Secrets.
	Embedded Issuer
	// Vault signs with CA keys that Vault keeps. It is nil if Vault is not configured.
	Vault Issuer
}

// Issue issues a pair through the right issuer.
func (i Issuers) Issue(request Request, authority KeyPair) (KeyPair, error) {
	switch {
	case request.Usage == UsageAuthority && i.Vault != nil, authority.Vault != "" && i.Vault != nil:
		return i.Vault.Issue(request, authority)
	case authority.Vault != "":
		return KeyPair{}, problem.Newf("VaultMissing", "the key of CA %q is in Vault at %q, and the operator does not know the address of Vault; set service.vault.address",
			request.Authority, authority.Vault)
	default:
		return i.Embedded.Issue(request, authority)
	}
}
