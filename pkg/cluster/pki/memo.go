package pki

import (
	"crypto/sha256"
	"crypto/x509"

	"k8s.io/utils/lru"
)

// mostKnown bounds the memory for what is known of certificates: a parsed one takes some 4 KiB. It is enough for the
// clusters that are being created at the same time, each of which needs the same 13 certificates several times.
const mostKnown = 512

var (
	// parsed are certificates by the hash of their DER. Callers share them and only read them.
	parsed = lru.New(mostKnown)
	// signatures are whether an authority signed a certificate, by both hashes.
	signatures = lru.New(mostKnown)
)

// parse parses a certificate in DER.
func parse(der []byte) (*x509.Certificate, error) {
	sum := sha256.Sum256(der)
	if cert, ok := parsed.Get(sum); ok {
		return cert.(*x509.Certificate), nil
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	parsed.Add(sum, cert)
	return cert, nil
}

// signed reports whether an authority signed a certificate.
func signed(cert, authority *x509.Certificate) bool {
	both := [2][sha256.Size]byte{sha256.Sum256(cert.Raw), sha256.Sum256(authority.Raw)}
	if known, ok := signatures.Get(both); ok {
		return known.(bool)
	}
	signed := cert.CheckSignatureFrom(authority) == nil
	signatures.Add(both, signed)
	return signed
}
