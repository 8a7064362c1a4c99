package nodes

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxFile bounds a file with a token or with certificates, in bytes.
const maxFile = 1 << 20

// errToken means that there is no token to send.
var errToken = errors.New("the controller has no token for runtimes")

// TokenFile returns a function that reads the token in a file. The file is read for each request, since kubelets replace
// tokens of service accounts, and administrators those of Secrets, while the controller runs.
func TokenFile(path string) func() (string, error) {
	return func() (string, error) {
		text, err := readFile(path)
		if err != nil {
			return "", fmt.Errorf("%w: %w", errToken, err)
		}
		token := strings.TrimSpace(string(text))
		if token == "" {
			return "", fmt.Errorf("%w: the file %s is empty", errToken, path)
		}
		return token, nil
	}
}

// RootsFile returns a function that reads the certificate authorities in a file of PEM, for each connection.
func RootsFile(path string) func() (*x509.CertPool, error) {
	return func() (*x509.CertPool, error) {
		text, err := readFile(path)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("reading %s: it has no certificate in PEM", path)
		}
		return roots, nil
	}
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(file, maxFile))
}
