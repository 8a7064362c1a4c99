package managementcluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority is the CA of one management cluster. Its key and the key that signs service account tokens are in the state
// directory. Each start issues all certificates again.
type authority struct {
	certificate []byte // PEM
	parsed      *x509.Certificate
	key         *ecdsa.PrivateKey
}

// pair is a certificate with its private key, both PEM.
type pair struct{ certificate, key []byte }

// openAuthority reads the CA of a directory or creates one.
func openAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the certificate authority: %w", err)
	}
	if _, err := openKey(dir, "service-account"); err != nil {
		return nil, err
	}
	key, err := openKey(dir, "ca")
	if err != nil {
		return nil, err
	}
	a := &authority{key: key}
	path := filepath.Join(dir, "ca.crt")
	a.certificate, err = os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if a.certificate, err = selfSign(key); err == nil {
			err = os.WriteFile(path, a.certificate, 0o644)
		}
	}
	if err == nil {
		a.parsed, err = parseCertificate(a.certificate)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the certificate authority %s: %w", path, err)
	}
	return a, nil
}

func selfSign(key *ecdsa.PrivateKey) ([]byte, error) {
	template := certificateTemplate("management-cluster")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return encode("CERTIFICATE", der), nil
}

// issue signs a certificate from a template, with a new key.
func (a *authority) issue(template *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.parsed, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	encodedKey, err := encodeKey(key)
	return pair{certificate: encode("CERTIFICATE", der), key: encodedKey}, err
}

// issueFiles writes the certificates that components read from files.
func (a *authority) issueFiles(dir string, address net.IP) error {
	for name, template := range map[string]*x509.Certificate{
		"serving":        controlPlaneCertificate(address),
		"etcd-client":    clientCertificate("kube-apiserver"),
		"kubelet-client": clientCertificate("kube-apiserver-kubelet-client", administrators),
		"front-proxy":    clientCertificate("front-proxy-client"),
	} {
		issued, err := a.issue(template)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		err = errors.Join(
			os.WriteFile(filepath.Join(dir, name+".crt"), issued.certificate, 0o644),
			os.WriteFile(filepath.Join(dir, name+".key"), issued.key, 0o600))
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.parsed)
	return pool
}

// clientCertificate is a template that makes its owner a user of the API server: common name and organizations are user
// name and groups.
func clientCertificate(user string, groups ...string) *x509.Certificate {
	template := certificateTemplate(user)
	template.Subject.Organization = groups
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return template
}

// controlPlaneCertificate is a template for all servers of the control plane. It also allows clients because etcd
// checks its own gateway.
func controlPlaneCertificate(address net.IP) *x509.Certificate {
	template := servingCertificate("management-cluster-server",
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
	template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1), address}
	return template
}

func servingCertificate(commonName string, names ...string) *x509.Certificate {
	template := certificateTemplate(commonName)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = names
	return template
}

func certificateTemplate(commonName string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand never fails on Linux
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(10, 0, 0),
	}
}
