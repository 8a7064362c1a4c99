package managementcluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// openKey reads <name>.key of a directory or creates it, together with its public key <name>.pub.
func openKey(dir, name string) (*ecdsa.PrivateKey, error) {
	path := filepath.Join(dir, name+".key")
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKey(path, filepath.Join(dir, name+".pub"))
	}
	if err != nil {
		return nil, fmt.Errorf("opening the key %s: %w", path, err)
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, fmt.Errorf("opening the key %s: it is not PEM", path)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("opening the key %s: %w", path, err)
	}
	return key, nil
}

func makeKey(path, publicPath string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key %s: %w", path, err)
	}
	private, err := encodeKey(key)
	if err != nil {
		return nil, fmt.Errorf("making the key %s: %w", path, err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("making the key %s: %w", path, err)
	}
	return key, errors.Join(
		os.WriteFile(publicPath, encode("PUBLIC KEY", public), 0o644),
		os.WriteFile(path, private, 0o600))
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return encode("EC PRIVATE KEY", der), err
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func parseCertificate(content []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}
