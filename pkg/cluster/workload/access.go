package workload

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// Access says how to reach and authenticate the API of a workload cluster.
type Access struct {
	// Addresses are host:port. They are tried in this order, except that the one that responded last comes first.
	Addresses []string
	// ServerName is what the API server's certificate must contain, a DNS name or an IP address.
	ServerName string
	// CA signed the API server's certificate; Certificate and Key are the operator's own. All are PEM.
	CA, Certificate, Key []byte
}

// trustsLike reports whether everything but the addresses is the same.
func (a Access) trustsLike(b Access) bool {
	return a.ServerName == b.ServerName && bytes.Equal(a.CA, b.CA) && bytes.Equal(a.Certificate, b.Certificate) && bytes.Equal(a.Key, b.Key)
}

// accessError says which part of an Access cannot be parsed. It wraps no error because the text of parser errors may
// contain parts of keys.
type accessError struct{ text string }

// Error returns a sentence for a person.
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

// errNoAddress says that no address is known yet.
var errNoAddress = errors.New("no address of the API server is known")
