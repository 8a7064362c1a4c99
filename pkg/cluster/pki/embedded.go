package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"

	"github.com/giantswarm/microerror"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

const (
	// authorityLifetime is the validity of CAs, the same as in the original: 87600 h.
	authorityLifetime = 10 * 365 * 24 * time.Hour
	// leafLifetime is the validity of all other certificates.
	leafLifetime = 365 * 24 * time.Hour
	// backdating tolerates guests whose clock is a little behind.
	backdating = time.Hour
)

// Embedded issues certificates for keys that it generates itself: ECDSA P-256, signed by a CA that is kept in a Secret.
type Embedded struct {
	Clock clock.PassiveClock
}

// Issue issues the key pair that the request describes. authority is the CA that signs it; it is ignored for requests
// for CAs.
func (e Embedded) Issue(request Request, authority KeyPair) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, microerror.Mask(err)
	}
	template, err := e.template(request)
	if err != nil {
		return KeyPair{}, err
	}
	signer, signerKey := template, key
	if request.Usage != UsageAuthority {
		if signer, signerKey, err = parseAuthority(request.Authority, authority); err != nil {
			return KeyPair{}, err
		}
		if signer.NotAfter.Before(template.NotAfter) {
			template.NotAfter = signer.NotAfter
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, signerKey)
	if err != nil {
		return KeyPair{}, microerror.Mask(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return KeyPair{}, microerror.Mask(err)
	}
	pair := KeyPair{
		CA:          Trusted(authority),
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}
	if request.Usage == UsageAuthority {
		pair.CA = pair.Certificate
	}
	return pair, nil
}

func (e Embedded) template(request Request) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, microerror.Mask(err)
	}
	now := e.Clock.Now().UTC()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: request.CommonName, Organization: request.Organizations},
		NotBefore:    now.Add(-backdating), NotAfter: now.Add(leafLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, DNSNames: request.DNSNames,
		BasicConstraintsValid: true,
	}
	for _, ip := range request.IPs {
		if ip.IsValid() {
			template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
		}
	}
	if request.Term > 0 {
		template.NotAfter = now.Add(request.Term)
	}
	switch request.Usage {
	case UsageAuthority:
		template.NotAfter = now.Add(authorityLifetime)
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign|x509.KeyUsageDigitalSignature
	case UsageClient:
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	case UsageServer:
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	case UsageBoth:
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	return template, nil
}

func parseAuthority(name string, pair KeyPair) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	cert, err := ParseCertificate(pair.Certificate)
	if err != nil {
		return nil, nil, problem.Newf("CAMalformed", "the certificate of CA %q: %s", name, err)
	}
	block, _ := pem.Decode(pair.Key)
	if block == nil {
		return nil, nil, problem.Newf("CAMalformed", "CA %q has no private key, so it cannot sign certificates", name)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, problem.Newf("CAMalformed", "the private key of CA %q is not an EC key", name)
	}
	return cert, key, nil
}

// ParseCertificate parses the first certificate of PEM text.
func ParseCertificate(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, problem.Newf("CertificateMalformed", "it is not a PEM certificate")
	}
	cert, err := parse(block.Bytes)
	if err != nil {
		return nil, problem.Newf("CertificateMalformed", "it is not an X.509 certificate")
	}
	return cert, nil
}
