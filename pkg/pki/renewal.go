package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"net"
	"slices"
	"time"
)

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
	switch name := lacks(cert, request); {
	case name != "":
		return "it does not speak for " + name
	case !at.IsZero() && !now.Before(at):
		return "a third of its term or less is left"
	case !bytes.Equal(pair.CA, authority.CA) && signedByOneOf(pair.Certificate, authority.CA):
		return "others are believed beside its authority, or no more"
	}
	return ""
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

// signedByOneOf says whether one of the authorities, which are PEM text, has signed a certificate.
func signedByOneOf(certificate, authorities []byte) bool {
	cert, err := ParseCertificate(certificate)
	if err != nil {
		return false
	}
	for block, rest := pem.Decode(authorities); block != nil; block, rest = pem.Decode(rest) {
		if authority, err := x509.ParseCertificate(block.Bytes); err == nil && cert.CheckSignatureFrom(authority) == nil {
			return true
		}
	}
	return false
}
