package nodes

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// authority is a certificate authority, or a certificate that signs itself.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func (a authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw}))
}

// issue returns a certificate for names and addresses, signed by the authority; nil for itself.
func (a *authority) issue(t *testing.T, isCA bool, names ...string) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"}, IsCA: isCA, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, name)
	}
	parent, signer := template, key
	if a != nil {
		parent, signer = a.certificate, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{certificate, key}
}

func TestWhichCertificateIsTheRuntimes(t *testing.T) {
	var none *authority
	own, other := none.issue(t, false, "n1"), none.issue(t, false, "n1")
	elsewhere := none.issue(t, false, "n2")
	root, stranger := none.issue(t, true), none.issue(t, true)
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte(root.pem()), 0o600); err != nil {
		t.Fatal(err)
	}
	signed := root.issue(t, false, "runtimes.example.org")
	middle := root.issue(t, true)
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		shown  string
		ca     string
		has    []authority
		trusts bool
	}{
		"the one that the SmolVMNode shows":       {shown: own.pem(), has: []authority{own}, trusts: true},
		"with words before it":                    {shown: "words\n" + own.pem(), has: []authority{own}, trusts: true},
		"the next one, while it is renewed":       {shown: own.pem() + other.pem(), has: []authority{other}, trusts: true},
		"one that another node has made":          {shown: elsewhere.pem(), has: []authority{elsewhere}},
		"one with other names, that is given":     {shown: signed.pem(), has: []authority{signed}, trusts: true},
		"a third one":                             {shown: own.pem() + own.pem() + other.pem(), has: []authority{other}},
		"another one for the same name":           {shown: own.pem(), has: []authority{other}},
		"the right one, but not first":            {shown: own.pem(), has: []authority{other, own}},
		"none is shown":                           {has: []authority{own}},
		"what is shown is none":                   {shown: "x", has: []authority{own}},
		"a key is shown":                          {shown: "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n", has: []authority{own}},
		"an authority, for the node":              {ca: file, has: []authority{root.issue(t, false, "n1")}, trusts: true},
		"an authority, for the address":           {ca: file, has: []authority{root.issue(t, false, "10.0.0.1")}, trusts: true},
		"an authority, for all runtimes":          {ca: file, has: []authority{middle.issue(t, false, "smolvm-runtime"), middle}, trusts: true},
		"an authority, one between is missing":    {ca: file, has: []authority{middle.issue(t, false, "smolvm-runtime")}},
		"an authority, for another node":          {ca: file, has: []authority{root.issue(t, false, "n2", "10.0.0.2")}},
		"an authority, and the one that is shown": {ca: file, shown: own.pem(), has: []authority{own}},
		"another authority":                       {ca: file, has: []authority{stranger.issue(t, false, "n1")}},
		"a file without an authority":             {ca: garbage, has: []authority{root.issue(t, false, "n1")}},
		"no file":                                 {ca: "/nowhere/ca.crt", has: []authority{root.issue(t, false, "n1")}},
	} {
		t.Run(name, func(t *testing.T) {
			n := Node{Name: "n1", IP: "10.0.0.1", Port: 9443, Certificate: test.shown}
			var s tls.ConnectionState
			for _, c := range test.has {
				s.PeerCertificates = append(s.PeerCertificates, c.certificate)
			}
			err := n.isPinned(s)
			if test.ca != "" {
				err = n.isSigned(s, RootsFile(test.ca))
			}
			if (err == nil) != test.trusts || err != nil && !errors.Is(err, errCertificate) {
				t.Errorf("the error is %v; it is trusted: %t, want %t", err, err == nil, test.trusts)
			}
		})
	}
}

func TestTheFileOfTheToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	read := TokenFile(file)
	if _, err := read(); !errors.Is(err, errToken) {
		t.Errorf("without a file the error is %v", err)
	}
	for content, want := range map[string]string{"a\n": "a", " b": "b"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := read(); got != want || err != nil {
			t.Errorf("it is %q, %v, want %q", got, err, want)
		}
	}
	if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); !errors.Is(err, errToken) {
		t.Errorf("an empty file has the error %v", err)
	}
}

func TestWhereARuntimeIsAsked(t *testing.T) {
	for name, test := range map[string]struct {
		endpoint v1alpha1.Endpoint
		want     string
	}{
		"an address":  {v1alpha1.Endpoint{PodIP: "10.0.0.1", Port: 9443}, "https://10.0.0.1:9443"},
		"IPv6":        {v1alpha1.Endpoint{PodIP: "fd00::1", Port: 9443}, "https://[fd00::1]:9443"},
		"no port":     {v1alpha1.Endpoint{PodIP: "10.0.0.1"}, ""},
		"no address":  {v1alpha1.Endpoint{Port: 9443}, ""},
		"a host name": {v1alpha1.Endpoint{PodIP: "evil.example.org/x?", Port: 9443}, ""},
	} {
		node := &v1alpha1.SmolVMNode{}
		node.Status.Endpoint = test.endpoint
		n, ok := NodeOf(node)
		if ok != (test.want != "") || ok && n.address() != test.want {
			t.Errorf("%s: it is %s, %t", name, n.address(), ok)
		}
	}
}
