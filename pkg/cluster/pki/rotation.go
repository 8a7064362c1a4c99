package pki

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// Phase is the phase of a CA's rotation. Every machine has to be restarted between one phase and the next, or some
// machines would not trust others.
type Phase int

const (
	// Stable means that there is one CA, which issues certificates and is trusted.
	Stable Phase = iota
	// Prepared means that the old CA issues certificates, and both are trusted.
	Prepared
	// Switched means that the new CA issues certificates, and both are trusted.
	Switched
)

// PhaseOf returns the rotation phase of a CA's pair.
func PhaseOf(pair KeyPair) Phase {
	switch {
	case len(pair.NextCertificate) > 0:
		return Prepared
	case len(parseAll(pair.CA)) > 1:
		return Switched
	default:
		return Stable
	}
}

// Advance moves a CA to the next phase of its rotation. successor issues the pair of the new CA, and is called only
// when the rotation begins.
func Advance(pair KeyPair, successor func() (KeyPair, error)) (KeyPair, error) {
	switch PhaseOf(pair) {
	case Prepared:
		return KeyPair{
			CA: both(pair.NextCertificate, pair.Certificate), Certificate: pair.NextCertificate, Key: pair.NextKey, Vault: pair.NextVault,
		}, nil
	case Switched:
		return KeyPair{CA: pair.Certificate, Certificate: pair.Certificate, Key: pair.Key, Vault: pair.Vault}, nil
	}
	next, err := successor()
	if err != nil {
		return KeyPair{}, err
	}
	pair.CA = both(pair.Certificate, next.Certificate)
	pair.NextCertificate, pair.NextKey, pair.NextVault = next.Certificate, next.Key, next.Vault
	return pair, nil
}

// Successor issues the pair that the CA of the given name is rotated to.
func Successor(name string, requests []Request, issuer Issuer) (KeyPair, error) {
	i := slices.IndexFunc(requests, func(r Request) bool { return r.Name == name })
	if i < 0 {
		return KeyPair{}, fmt.Errorf("no CA %q is requested", name)
	}
	return issuer.Issue(requests[i], KeyPair{})
}

// RotationDue returns when the rotation of a CA has to begin: when a third of its validity is left. It is zero if its
// certificate cannot be parsed.
func RotationDue(pair KeyPair) time.Time {
	cert, err := ParseCertificate(pair.Certificate)
	if err != nil {
		return time.Time{}
	}
	return lastThird(cert)
}

func both(first, second []byte) []byte {
	return slices.Concat(bytes.TrimSpace(first), []byte("\n"), bytes.TrimSpace(second), []byte("\n"))
}
