package vault

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// checkAuthority reports how a CA that Vault issued differs from its request.
func (i *Issuer) checkAuthority(request pki.Request, pair pki.KeyPair, mount string) error {
	cert, err := pki.ParseCertificate(pair.Certificate)
	switch {
	case err != nil:
		return err
	case !cert.IsCA || cert.Subject.CommonName != request.CommonName:
		return errors.New("it is not the certificate of the requested CA")
	case cert.CheckSignatureFrom(cert) != nil:
		return errors.New("it is not self-signed")
	case !pki.IssuerIn(pair.Vault, mount):
		return errors.New("the response does not name the issuer")
	case request.Name == pki.CA:
		return matches(pair)
	}
	return nil
}

// checkLeaf reports how a certificate that Vault signed differs from its request: its holder gets the identity in it,
// and peers that trust the cluster's CA have to accept it.
func checkLeaf(request pki.Request, pair, authority pki.KeyPair) error {
	if err := matches(pair); err != nil {
		return err
	}
	cert, err := pki.ParseCertificate(pair.Certificate)
	if err != nil {
		return err
	}
	signer, err := pki.ParseCertificate(authority.Certificate)
	if err != nil {
		return err
	}
	if cert.CheckSignatureFrom(signer) != nil {
		return errors.New("the cluster's CA did not sign it")
	}
	asked := template(request)
	switch {
	case cert.IsCA || cert.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0:
		return errors.New("it may sign other certificates")
	case cert.Subject.CommonName != asked.Subject.CommonName || !sameSet(cert.Subject.Organization, asked.Subject.Organization):
		return errors.New("it is for another user or other groups")
	case !sameSet(named(cert.DNSNames, cert), named(asked.DNSNames, cert)) || !sameSet(texts(cert.IPAddresses), texts(asked.IPAddresses)),
		len(cert.EmailAddresses)+len(cert.URIs) > 0:
		return errors.New("it is for other names or addresses")
	case !sameSet(cert.ExtKeyUsage, extended[request.Usage]) || len(cert.UnknownExtKeyUsage) > 0:
		return errors.New("it is for other uses")
	}
	return nil
}

// named returns the names without the certificate's common name, which Vault may repeat among them.
func named(names []string, cert *x509.Certificate) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == cert.Subject.CommonName })
}

// extended maps usages to the extended key usages as x509 parses them.
var extended = map[pki.Usage][]x509.ExtKeyUsage{
	pki.UsageClient: {x509.ExtKeyUsageClientAuth}, pki.UsageServer: {x509.ExtKeyUsageServerAuth},
	pki.UsageBoth: {x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
}

// matches checks that certificate and key belong together. The error text contains nothing of the key.
func matches(pair pki.KeyPair) error {
	if _, err := tls.X509KeyPair(pair.Certificate, pair.Key); err != nil {
		return errors.New("certificate and key do not belong together")
	}
	return nil
}

func texts(addresses []net.IP) []string {
	var all []string
	for _, address := range addresses {
		all = append(all, address.String())
	}
	return all
}

// sameSet reports whether two lists are equal, regardless of order and repetition.
func sameSet[T comparable](a, b []T) bool {
	within := func(list []T) func(T) bool { return func(one T) bool { return !slices.Contains(list, one) } }
	return !slices.ContainsFunc(a, within(b)) && !slices.ContainsFunc(b, within(a))
}
