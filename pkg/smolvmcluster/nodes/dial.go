package nodes

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

const (
	dialTimeout = 10 * time.Second
	idleTimeout = 90 * time.Second
	// maxHeader bounds the header of an answer, in bytes.
	maxHeader = 64 << 10
)

// runtimeName is a name that certificates of runtimes may be for, if one certificate serves all nodes.
const runtimeName = "smolvm-runtime"

// errCertificate means that what answers is not the runtime that the SmolVMNode shows. Nothing was sent to it.
var errCertificate = errors.New("it does not have the certificate of the runtime")

// Node is where the runtime of a node is asked.
type Node struct {
	// Name is that of the node.
	Name string
	// UID is that of the node, as its runtime reports it.
	UID types.UID
	// IP and Port are the runtime's.
	IP   string
	Port int32
	// Certificate has those that are trusted, in PEM, unless there are certificate authorities.
	Certificate string
}

// NodeOf returns where the runtime of a node is asked; ok is false if it does not say so.
func NodeOf(n *v1alpha1.SmolVMNode) (node Node, ok bool) {
	e := n.Status.Endpoint
	return Node{Name: n.Name, UID: n.Status.NodeUID, IP: e.PodIP, Port: e.Port, Certificate: e.Certificate}, net.ParseIP(e.PodIP) != nil && e.Port > 0
}

func (n Node) address() string {
	return "https://" + net.JoinHostPort(n.IP, strconv.Itoa(int(n.Port)))
}

// client returns a client with its own connections, so that a node that hangs takes none from others.
func (o Options) client(n Node) (*api.Client, error) {
	verify := n.isPinned
	if o.Roots != nil {
		verify = func(s tls.ConnectionState) error { return n.isSigned(s, o.Roots) }
	}
	var transport http.RoundTripper = &http.Transport{
		// The certificate is checked by verify, also when a session is resumed.
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, VerifyConnection: verify}, //nolint:gosec // see above
		DialContext:     (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: idleTimeout,
		MaxResponseHeaderBytes: maxHeader, DisableCompression: true,
	}
	if o.Wrap != nil {
		transport = o.Wrap(transport)
	}
	return api.NewClient(n.address(), api.Options{HTTP: &http.Client{Transport: transport}, Token: o.Token})
}

// isPinned compares the certificate of a connection with those of the SmolVMNode, to the byte: the current one and, while
// the runtime renews it, the next one. Who has its key is the runtime, whatever the certificate says of times. One that a
// runtime has made for itself is for its node, and shown for another node it is not trusted.
func (n Node) isPinned(s tls.ConnectionState) error {
	if n.Certificate == "" {
		return fmt.Errorf("%w: SmolVMNode %s shows none, and the controller has no certificate authority of runtimes", errCertificate, n.Name)
	}
	shown := certificates(n.Certificate)
	if len(shown) == 0 {
		return fmt.Errorf("%w: what SmolVMNode %s shows is no certificate in PEM", errCertificate, n.Name)
	}
	for _, one := range shown {
		if len(s.PeerCertificates) > 0 && bytes.Equal(s.PeerCertificates[0].Raw, one) {
			return n.isOwn(s.PeerCertificates[0])
		}
	}
	return fmt.Errorf("%w that SmolVMNode %s shows; nothing was sent to it", errCertificate, n.Name)
}

// isOwn checks that a certificate that signs itself is for the node. Those that administrators give to runtimes may have
// other names.
func (n Node) isOwn(leaf *x509.Certificate) error {
	signsItself := bytes.Equal(leaf.RawIssuer, leaf.RawSubject) && leaf.CheckSignature(leaf.SignatureAlgorithm, leaf.RawTBSCertificate, leaf.Signature) == nil
	// Names of nodes may look like addresses, which VerifyHostname looks for elsewhere.
	if !signsItself || slices.Contains(leaf.DNSNames, n.Name) || leaf.VerifyHostname(n.Name) == nil {
		return nil
	}
	return fmt.Errorf("%w: the one that SmolVMNode %s shows is for another node; nothing was sent to it", errCertificate, n.Name)
}

// maxCertificates is how many certificates a runtime may show.
const maxCertificates = 2

// certificates returns the certificates in a text, which is a runtime's, as DER.
func certificates(text string) (found [][]byte) {
	for rest := []byte(text); len(found) < maxCertificates; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type == "CERTIFICATE" {
			found = append(found, block.Bytes)
		}
	}
	return found
}

// isSigned checks that the certificate of a connection is signed by an authority, and is for the node, for its address, or
// for runtimes of all nodes.
func (n Node) isSigned(s tls.ConnectionState, roots func() (*x509.CertPool, error)) error {
	pool, err := roots()
	if err != nil {
		return fmt.Errorf("%w: %w", errCertificate, err)
	}
	if len(s.PeerCertificates) == 0 {
		return fmt.Errorf("%w: it has none", errCertificate)
	}
	leaf, between := s.PeerCertificates[0], x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between}); err != nil {
		return fmt.Errorf("%w: %w; nothing was sent to it", errCertificate, err)
	}
	for _, name := range []string{n.Name, n.IP, runtimeName} {
		if leaf.VerifyHostname(name) == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: it is for none of %s, %s and %s; nothing was sent to it", errCertificate, n.Name, n.IP, runtimeName)
}
