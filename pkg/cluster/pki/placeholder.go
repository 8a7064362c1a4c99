package pki

import "fmt"

// Placeholder fulfills requests with text that names the certificate or key, for rendered output that is never run.
type Placeholder struct{}

// Issue returns text instead of certificates and keys.
func (Placeholder) Issue(request Request, authority KeyPair) (KeyPair, error) {
	pair := KeyPair{
		CA:          authority.CA,
		Certificate: fmt.Appendf(nil, "<certificate %s>\n", request.Name),
		Key:         fmt.Appendf(nil, "<private key %s>\n", request.Name),
	}
	if request.Usage == UsageAuthority {
		pair.CA = pair.Certificate
	}
	return pair, nil
}

// PlaceholderKey returns a key that is well-formed but not secret.
func PlaceholderKey(name string) string {
	if name == "bootstrap-token" {
		return "000000.0000000000000000"
	}
	return "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
}
