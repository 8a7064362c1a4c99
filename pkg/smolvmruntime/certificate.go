package smolvmruntime

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// certificateLife is how long a self-signed certificate is valid.
	certificateLife = 90 * 24 * time.Hour
	// certificateSkew is how far the clocks of clients may be behind.
	certificateSkew = time.Hour
	// overlap is for how long the next certificate is published before it is served: clients that trust the published ones
	// alone must know it by then.
	overlap = 10 * time.Minute
	// maxPEM is how many bytes a file with a certificate or key may have.
	maxPEM = 1 << 20

	currentFile, nextFile = "runtime-tls.pem", "runtime-tls-next.pem"
	blockCertificate      = "CERTIFICATE"
	blockKey              = "PRIVATE KEY"
)

// pair is a certificate with its key.
type pair struct {
	served *tls.Certificate
	leaf   *x509.Certificate
}

// public returns the certificate as PEM.
func (p *pair) public() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: p.leaf.Raw})
}

// wornAt is when a certificate is to be replaced: after two thirds of its life.
func (p *pair) wornAt() time.Time {
	return p.leaf.NotBefore.Add(p.leaf.NotAfter.Sub(p.leaf.NotBefore) * 2 / 3)
}

// selfSigned makes a certificate for this node.
func selfSigned(node, ip string, now time.Time) (*pair, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("making a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: commonName(node)},
		NotBefore: now.Add(-certificateSkew), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, DNSNames: []string{node}, IPAddresses: addressesOf(ip),
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing the certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the key: %w", err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: raw}), pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: secret})...)
	made, err := parsePair(text, text)
	return made, text, err
}

// commonName returns as much of a name as fits (RFC 5280, ub-common-name). Clients check the alternative names.
func commonName(node string) string { return node[:min(len(node), 64)] }

// addressesOf returns the addresses that the certificate is for.
func addressesOf(ip string) []net.IP {
	addresses := []net.IP{net.IPv4(127, 0, 0, 1)}
	if own := net.ParseIP(ip); own != nil && !own.Equal(addresses[0]) {
		addresses = append(addresses, own)
	}
	return addresses
}

func parsePair(certificate, key []byte) (*pair, error) {
	served, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(served.Certificate[0])
	if err != nil {
		return nil, err
	}
	served.Leaf = leaf
	return &pair{&served, leaf}, nil
}

// suits reports whether a certificate is for this node, and not about to end.
func (p *pair) suits(node, ip string, now time.Time) bool {
	for _, address := range addressesOf(ip) {
		if !slices.ContainsFunc(p.leaf.IPAddresses, address.Equal) {
			return false
		}
	}
	return slices.Equal(p.leaf.DNSNames, []string{node}) && !now.Before(p.leaf.NotBefore) && now.Add(overlap).Before(p.leaf.NotAfter)
}

// readPair reads a certificate and its key. The files are those of the administrator, or of this program.
func readPair(certificate, key string) (*pair, error) {
	public, err := readPEM(certificate)
	if err != nil {
		return nil, err
	}
	secret, err := readPEM(key)
	if err != nil {
		return nil, err
	}
	read, err := parsePair(public, secret)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate %s and its key: %w", certificate, err)
	}
	return read, nil
}

func readPEM(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxPEM+1))
	if err == nil && len(text) > maxPEM {
		err = fmt.Errorf("%s has more than %d bytes", path, maxPEM)
	}
	return text, err
}

// writeSecret replaces a file as a whole, for the eyes of its user alone.
func writeSecret(path string, text []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // has the mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = io.Copy(file, bytes.NewReader(text))
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// ignoreMissing returns an error unless it says that there is no such file.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
