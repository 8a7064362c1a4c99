package pki

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"slices"
	"time"
)

// whyTerm is the only reason for renewal that depends on time.
const whyTerm = "a third of its term or less is left"

// Renewals is what has to change in existing pairs.
type Renewals struct {
	// Due maps the name of each pair that has to change to the reason: it has to be issued again, or its trust bundle
	// differs from that of its CA.
	Due map[string]string
	// Next is when the next of the other pairs has to be renewed. It is zero if none ever has to be.
	Next time.Time
	// Early says which pairs are not valid yet; nil if all are.
	Early error
}

// whyTrust is the reason of a pair of which only the trust bundle changes.
const whyTrust = "its trust bundle changes"

// RenewalsOf returns what has to change in existing pairs. No CA is ever renewed: see Advance.
func RenewalsOf(existing Set, requests []Request, now time.Time) Renewals {
	r := Renewals{Due: map[string]string{}}
	requests, _ = proper(requests)
	for _, request := range requests {
		pair, exists := existing[request.Name]
		authority, signs := existing[request.Authority]
		if !exists || !signs {
			continue
		}
		switch why := due(request, pair, authority, now); {
		case why != "":
			r.Due[request.Name] = why
			continue
		case outdatedTrust(request, pair, authority):
			r.Due[request.Name] = whyTrust
		}
		r.Next = earlier(r.Next, renewal(request, pair, authority))
	}
	r.Early = unborn(existing, requests, now)
	return r
}

// Renew returns the pairs that are due in their new form; due is as in Renewals. doubt is nil unless the current time
// is in doubt. While it is, no pair is renewed because of its age: a clock that is ahead for a moment would otherwise
// replace the pairs of all clusters by pairs that are not valid yet. The error says why pairs that are due could not be
// renewed; they stay in use as they are.
func Renew(existing Set, requests []Request, due map[string]string, issuer Issuer, now time.Time, doubt error) (Set, error) {
	renewed := Set{}
	var failed failures
	requests, _ = proper(requests)
	for _, request := range requests {
		pair, authority := existing[request.Name], existing[request.Authority]
		switch {
		case due[request.Name] == "":
			continue
		case due[request.Name] == whyTrust:
			pair.CA = Trusted(authority)
			renewed[request.Name] = pair
			continue
		case due[request.Name] == whyTerm && doubt != nil:
			failed.add(request.Name, doubt)
			continue
		}
		fresh, err := issue(issuer, request, authority, now)
		if err != nil {
			failed.add(request.Name, err)
			continue
		}
		renewed[request.Name] = fresh
	}
	return renewed, failed.join("cannot be renewed and stays in use")
}

// unborn reports pairs that are not valid yet.
func unborn(set Set, requests []Request, now time.Time) error {
	var told failures
	for _, request := range requests {
		if pair, exists := set[request.Name]; exists && !request.Keep && early(pair, now) {
			told.add(request.Name, errNotValidYet)
		}
	}
	return told.join("is not valid yet")
}

// due says why an existing pair has to be renewed, as the end of a sentence. It is empty if the pair need not be.
func due(request Request, pair, authority KeyPair, now time.Time) string {
	if request.Keep || request.Usage == UsageAuthority {
		return ""
	}
	cert, err := ParseCertificate(pair.Certificate)
	if err != nil {
		return ""
	}
	at := renewal(request, pair, authority)
	switch name, more := lacks(cert, request), exceeds(cert, request); {
	case name != "":
		return "it lacks " + name
	case more != "":
		return more
	case !at.IsZero() && !now.Before(at):
		return whyTerm
	case !signedByOneOf(pair.Certificate, authority.Certificate) && signedByOneOf(pair.Certificate, authority.CA):
		return "its CA was rotated"
	}
	return ""
}

// outdatedTrust reports whether the trust bundle of a pair differs from that of its CA.
func outdatedTrust(request Request, pair, authority KeyPair) bool {
	return !request.Keep && request.Usage != UsageAuthority && signedByOneOf(pair.Certificate, authority.Certificate) &&
		!sameCertificates(pair.CA, Trusted(authority))
}

// Trusted returns the certificates that the holder of a pair of this CA has to trust: the CA's own trust bundle and the
// CA itself, because an intermediate CA does not list itself there.
func Trusted(authority KeyPair) []byte {
	own, err := ParseCertificate(authority.Certificate)
	if err != nil || slices.ContainsFunc(parseAll(authority.CA), own.Equal) {
		return authority.CA
	}
	return both(authority.Certificate, authority.CA)
}

// sameCertificates reports whether two PEM texts contain the same certificates.
func sameCertificates(a, b []byte) bool {
	one, other := parseAll(a), parseAll(b)
	within := func(list []*x509.Certificate) func(*x509.Certificate) bool {
		return func(cert *x509.Certificate) bool { return !slices.ContainsFunc(list, cert.Equal) }
	}
	return !slices.ContainsFunc(one, within(other)) && !slices.ContainsFunc(other, within(one))
}

// parseAll parses all certificates in PEM text.
func parseAll(text []byte) []*x509.Certificate {
	var all []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := parse(block.Bytes); err == nil {
			all = append(all, cert)
		}
	}
	return all
}

// renewal returns when a pair has to be renewed: when a third of its validity is left. It is zero if the pair never has
// to be renewed, or if renewal would not help because its CA expires no later.
func renewal(request Request, pair, authority KeyPair) time.Time {
	if request.Keep || request.Usage == UsageAuthority {
		return time.Time{}
	}
	cert, err := ParseCertificate(pair.Certificate)
	if err != nil {
		return time.Time{}
	}
	signer, err := ParseCertificate(authority.Certificate)
	if err != nil || !signer.NotAfter.After(cert.NotAfter) {
		return time.Time{}
	}
	return lastThird(cert)
}

// lastThird returns when the last third of a certificate's validity begins.
func lastThird(cert *x509.Certificate) time.Time {
	return cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / 3)
}

// lacks returns a requested name, address, user or group that the certificate does not contain, or "" if there is none.
func lacks(cert *x509.Certificate, request Request) string {
	if cert.Subject.CommonName != request.CommonName {
		return "the user " + request.CommonName
	}
	for _, group := range request.Organizations {
		if !slices.Contains(cert.Subject.Organization, group) {
			return "the group " + group
		}
	}
	for _, name := range request.DNSNames {
		if !slices.Contains(cert.DNSNames, name) {
			return "the name " + name
		}
	}
	for _, ip := range request.IPs {
		same := func(other net.IP) bool { return other.Equal(ip.AsSlice()) }
		if ip.IsValid() && !slices.ContainsFunc(cert.IPAddresses, same) {
			return "the address " + ip.String()
		}
	}
	return ""
}

// exceeds says what a certificate allows beyond its request, as the end of a sentence. It is empty if there is nothing.
// Extra names are harmless; extra rights are not.
func exceeds(cert *x509.Certificate, request Request) string {
	for _, group := range cert.Subject.Organization {
		if !slices.Contains(request.Organizations, group) {
			return "it has the group " + group
		}
	}
	switch {
	case request.Usage == UsageServer && slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return "it is valid for clients as well"
	case request.Term > 0 && cert.NotAfter.Sub(cert.NotBefore) > request.Term+2*backdating:
		return "its validity is too long"
	}
	return ""
}

// signedByOneOf reports whether one of the CAs in PEM text signed a certificate.
func signedByOneOf(certificate, authorities []byte) bool {
	cert, err := ParseCertificate(certificate)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(parseAll(authorities), func(authority *x509.Certificate) bool { return signed(cert, authority) })
}
