package workload

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// Access is how the API of a workload cluster is reached and trusted.
type Access struct {
	// Addresses are host:port, tried in this order, the one that answered last before the others.
	Addresses []string
	// ServerName is what the API server's certificate must carry, a DNS name or an IP address.
	ServerName string
	// CA is the authority that signed the API server's certificate; Certificate and Key are the operator's own. All PEM.
	CA, Certificate, Key []byte
}

// trustsLike says whether everything but the addresses is the same.
func (a Access) trustsLike(b Access) bool {
	return a.ServerName == b.ServerName && bytes.Equal(a.CA, b.CA) && bytes.Equal(a.Certificate, b.Certificate) && bytes.Equal(a.Key, b.Key)
}

// accessError says what of an Access cannot be read. It wraps nothing, for the text of parsers may hold pieces of keys.
type accessError struct{ text string }

// Error is a sentence for a person.
func (e *accessError) Error() string { return e.text }

// tlsConfig parses certificates and key. The error is an accessError.
func (a Access) tlsConfig() (*tls.Config, error) {
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(a.CA) {
		return nil, &accessError{"the certificate of the authority cannot be read"}
	}
	pair, err := tls.X509KeyPair(a.Certificate, a.Key)
	if err != nil {
		return nil, &accessError{"the operator's certificate for the workload cluster and its key cannot be read or do not belong together"}
	}
	if a.ServerName == "" {
		return nil, &accessError{"the name of the API server is not known"}
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: a.ServerName, RootCAs: authorities, Certificates: []tls.Certificate{pair},
		NextProtos: []string{"h2", "http/1.1"},
	}, nil
}

// errNoAddress: there is nowhere to go yet.
var errNoAddress = errors.New("no address of the API server is known")
