package pki

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// Phase is how far an authority is on its way to its successor. From each phase to the next every machine has to be begun anew, or some
// would not believe others.
type Phase int

const (
	// Alone is when the authority signs, and nobody is believed but it.
	Alone Phase = iota
	// Announced is when it signs, and its successor is believed as well.
	Announced
	// Succeeded is when the successor signs, and its predecessor is believed as well.
	Succeeded
)

// PhaseOf tells the phase of an authority's pair.
func PhaseOf(pair KeyPair) Phase {
	switch {
	case len(pair.NextCertificate) > 0:
		return Announced
	case len(parseAll(pair.CA)) > 1:
		return Succeeded
	default:
		return Alone
	}
}

// Succeed takes an authority one phase further. successor makes the pair of the one that comes after it.
func Succeed(pair KeyPair, successor func() (KeyPair, error)) (KeyPair, error) {
	switch PhaseOf(pair) {
	case Announced:
		return KeyPair{
			CA: both(pair.NextCertificate, pair.Certificate), Certificate: pair.NextCertificate, Key: pair.NextKey, Vault: pair.NextVault,
		}, nil
	case Succeeded:
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

// Successor makes the pair that the authority of that name is succeeded by.
func Successor(name string, requests []Request, issuer Issuer) (KeyPair, error) {
	i := slices.IndexFunc(requests, func(r Request) bool { return r.Name == name })
	if i < 0 {
		return KeyPair{}, fmt.Errorf("nothing is known of an authority %q", name)
	}
	return issuer.Issue(requests[i], KeyPair{})
}

// SuccessionDue is when the succession of an authority has to begin: when a third of its term is left. It is zero when its certificate
// cannot be read.
func SuccessionDue(pair KeyPair) time.Time {
	cert, err := ParseCertificate(pair.Certificate)
	if err != nil {
		return time.Time{}
	}
	return lastThird(cert)
}

func both(first, second []byte) []byte {
	return slices.Concat(bytes.TrimSpace(first), []byte("\n"), bytes.TrimSpace(second), []byte("\n"))
}
