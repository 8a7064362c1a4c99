package pki

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"slices"
	"time"
)

// whyTerm is the one reason that comes with time.
const whyTerm = "a third of its term or less is left"

// due says why a pair that exists has to be issued anew, as the end of a sentence; empty when it has not.
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
		return "it does not speak for " + name
	case more != "":
		return more
	case !at.IsZero() && !now.Before(at):
		return whyTerm
	case !signedByOneOf(pair.Certificate, authority.Certificate) && signedByOneOf(pair.Certificate, authority.CA):
		return "its authority has a successor"
	}
	return ""
}

// outdatedTrust says whether the holder of a pair believes others than those that its authority says.
func outdatedTrust(request Request, pair, authority KeyPair) bool {
	return !request.Keep && request.Usage != UsageAuthority && signedByOneOf(pair.Certificate, authority.Certificate) &&
		!sameCertificates(pair.CA, Trusted(authority))
}

// Trusted are the certificates that the holder of a pair of the authority has to believe: those that the authority says and its own,
// which an authority between does not name.
func Trusted(authority KeyPair) []byte {
	own, err := ParseCertificate(authority.Certificate)
	if err != nil || slices.ContainsFunc(parseAll(authority.CA), own.Equal) {
		return authority.CA
	}
	return both(authority.Certificate, authority.CA)
}

// sameCertificates compares PEM texts by the certificates in them.
func sameCertificates(a, b []byte) bool {
	one, other := parseAll(a), parseAll(b)
	within := func(list []*x509.Certificate) func(*x509.Certificate) bool {
		return func(cert *x509.Certificate) bool { return !slices.ContainsFunc(list, cert.Equal) }
	}
	return !slices.ContainsFunc(one, within(other)) && !slices.ContainsFunc(other, within(one))
}

// parseAll are the certificates in PEM text.
func parseAll(text []byte) []*x509.Certificate {
	var all []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, cert)
		}
	}
	return all
}

// renewal is when a pair has to be issued anew: when a third of its term is left. It is zero when it never has, or when that would not
// help because its authority does not last longer.
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

// lastThird is when the last third of a certificate's term begins.
func lastThird(cert *x509.Certificate) time.Time {
	return cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / 3)
}

// lacks is a name, address, user or group that is asked for and that a certificate does not speak for; empty when there is none.
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

// exceeds says what a certificate allows that is not asked for, as the end of a sentence; empty when that is nothing. A name too many does no
// harm, a right does.
func exceeds(cert *x509.Certificate, request Request) string {
	for _, group := range cert.Subject.Organization {
		if !slices.Contains(request.Organizations, group) {
			return "it speaks for the group " + group
		}
	}
	switch {
	case request.Usage == UsageServer && slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return "it introduces clients"
	case request.Term > 0 && cert.NotAfter.Sub(cert.NotBefore) > request.Term+2*backdating:
		return "it holds for too long"
	}
	return ""
}

// signedByOneOf says whether one of the authorities, which are PEM text, has signed a certificate.
func signedByOneOf(certificate, authorities []byte) bool {
	cert, err := ParseCertificate(certificate)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(parseAll(authorities), func(authority *x509.Certificate) bool { return cert.CheckSignatureFrom(authority) == nil })
}
