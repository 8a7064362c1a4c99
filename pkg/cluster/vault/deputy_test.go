package vault

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki/pkitest"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// fakeVault imitates Vault's API: it has a CA in each mount and signs every request.
type fakeVault struct {
	*httptest.Server
	// change is applied to each certificate before it is signed, and signer signs in place of the mount's CA.
	change func(*x509.Certificate)
	signer *fakeCA

	mu     sync.Mutex
	mounts map[string]*fakeCA
	asked  []string
}

type fakeCA struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newFakeVault(t *testing.T) (*fakeVault, *Issuer) {
	t.Helper()
	f := &fakeVault{mounts: map[string]*fakeCA{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("some"), 0o600); err != nil {
		t.Fatal(err)
	}
	issuer, err := New(Config{Address: f.URL, TokenFile: token, MountPrefix: "pki-", TTL: LeastTTL}, clock.RealClock{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f, issuer
}

// ServeHTTP issues CAs and signs requests.
func (f *fakeVault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/v1/")
	f.asked = append(f.asked, path)
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	mount, rest, _ := strings.Cut(path, "/")
	answer := map[string]any{}
	switch {
	case strings.HasPrefix(rest, "issuers/generate/root/"):
		f.mounts[mount] = newFakeCA(body["common_name"].(string))
		key, _ := x509.MarshalECPrivateKey(f.mounts[mount].key)
		answer = map[string]any{
			"certificate": encoded("CERTIFICATE", f.mounts[mount].certificate.Raw), "issuer_id": "4e7d61d1", "private_key": encoded("EC PRIVATE KEY", key),
		}
	case strings.HasSuffix(rest, "/sign-verbatim/"+role):
		answer["certificate"] = f.sign(f.mounts[mount], body)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"data": answer})
}

func (f *fakeVault) sign(by *fakeCA, body map[string]any) string {
	block, _ := pem.Decode([]byte(body["csr"].(string)))
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		panic(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: csr.Subject, DNSNames: csr.DNSNames, IPAddresses: csr.IPAddresses, PublicKey: csr.PublicKey,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
	for _, use := range body["ext_key_usage"].([]any) {
		cert.ExtKeyUsage = append(cert.ExtKeyUsage, map[any]x509.ExtKeyUsage{"ClientAuth": x509.ExtKeyUsageClientAuth, "ServerAuth": x509.ExtKeyUsageServerAuth}[use])
	}
	if f.change != nil {
		f.change(cert)
	}
	if f.signer != nil {
		by = f.signer
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, by.certificate, cert.PublicKey, by.key)
	if err != nil {
		panic(err)
	}
	return encoded("CERTIFICATE", der)
}

func newFakeCA(commonName string) *fakeCA {
	key := newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: commonName}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(100 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return &fakeCA{certificate: certificate, key: key}
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

func encoded(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// requestsOf returns the requests of a cluster.
func requestsOf(id string) []pki.Request {
	c := v1alpha1.Cluster{ID: id, Masters: []v1alpha1.Node{{ID: "m0aaa"}}}
	c.Kubernetes.API.Domain, c.Kubernetes.API.ClusterIPRange = "api."+id+".k8s.example.com", "10.96.0.0/16"
	c.Etcd.Domain = "etcd." + id + ".k8s.example.com"
	return pki.Requests(c, "cluster.local")
}

// TestSecretsCannotChooseAnotherClustersIssuer covers the confused deputy: a tenant's Secret for the CA of their own
// cluster holds the public certificate of another cluster's CA and the path of its issuer, where the operator's token
// may sign.
func TestSecretsCannotChooseAnotherClustersIssuer(t *testing.T) {
	f, issuer := newFakeVault(t)
	issuers := pki.Issuers{Vault: issuer}
	victims, err := pkitest.Complete(nil, requestsOf("victm"), issuers, time.Now(), nil)
	if err != nil || len(victims.Set) != len(requestsOf("victm")) {
		t.Fatalf("the first cluster has %d pairs: %v", len(victims.Set), err)
	}
	for _, path := range []string{
		victims.Set[pki.CA].Vault, "pki-kubernetes-evil1/issuer/../../" + victims.Set[pki.CA].Vault, "pki-kubernetes-evil1/issuer/..",
		"sys/raw", "pki-etcd-evil1/issuer/default", "pki-kubernetes-evil1/issuer/x?y=", "", "/", "/pki-kubernetes-evil1/issuer/x",
	} {
		f.asked = nil
		forged := pki.KeyPair{CA: victims.Set[pki.CA].CA, Certificate: victims.Set[pki.CA].Certificate, Vault: path}
		for _, request := range requestsOf("evil1") {
			if request.Authority != pki.CA {
				continue
			}
			pair, err := issuer.Issue(request, forged)
			if p, ok := problem.As(err); !ok || p.Reason != "VaultForeignIssuer" || len(pair.Certificate) > 0 {
				t.Errorf("%s by %q: err = %v, want VaultForeignIssuer", request.Name, path, err)
			}
		}
		if len(f.asked) > 0 {
			t.Errorf("path %q: Vault was asked %q", path, f.asked)
		}
	}
	nameless := requestsOf("victm")[3]
	nameless.Signer = ""
	if _, err := issuer.Issue(nameless, victims.Set[pki.CA]); err == nil {
		t.Error("a request whose CA is not known was signed")
	}
}

// TestWhatVaultAnswersIsChecked: certificates that do not match their request are rejected.
func TestWhatVaultAnswersIsChecked(t *testing.T) {
	other := newFakeCA("etcd-ab1cd")
	for name, test := range map[string]struct {
		change func(*x509.Certificate)
		signer *fakeCA
		want   string
	}{
		"as asked":                 {func(*x509.Certificate) {}, nil, ""},
		"the name is repeated":     {func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, c.Subject.CommonName) }, nil, ""},
		"another CA":               {nil, other, "the cluster's CA did not sign it"},
		"another key":              {func(c *x509.Certificate) { c.PublicKey = &newKey().PublicKey }, nil, "do not belong together"},
		"another user":             {func(c *x509.Certificate) { c.Subject.CommonName = "x" }, nil, "another user"},
		"a group less":             {func(c *x509.Certificate) { c.Subject.Organization = nil }, nil, "other groups"},
		"a group more":             {func(c *x509.Certificate) { c.Subject.Organization = append(c.Subject.Organization, "x") }, nil, "other groups"},
		"names less":               {func(c *x509.Certificate) { c.DNSNames = nil }, nil, "other names"},
		"a name more":              {func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "x.example.com") }, nil, "other names"},
		"an address more":          {func(c *x509.Certificate) { c.IPAddresses = append(c.IPAddresses, net.IPv4(1, 2, 3, 4)) }, nil, "addresses"},
		"a mail address":           {func(c *x509.Certificate) { c.EmailAddresses = []string{"a@example.com"} }, nil, "other names"},
		"a use less":               {func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, nil, "other uses"},
		"a use more":               {func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageCodeSigning) }, nil, "other uses"},
		"a CA":                     {func(c *x509.Certificate) { c.IsCA = true }, nil, "sign other certificates"},
		"a certificate that signs": {func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign }, nil, "sign other certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			f, issuer := newFakeVault(t)
			requests := requestsOf("ab1cd")
			authority, err := issuer.Issue(requests[1], pki.KeyPair{}) // etcd's
			if err != nil {
				t.Fatal(err)
			}
			f.change, f.signer = test.change, test.signer
			for _, request := range requests {
				if request.Name != pki.Etcd {
					continue
				}
				_, err := issuer.Issue(request, authority)
				if p, ok := problem.As(err); (err != nil) != (test.want != "") || err != nil && (!ok || p.Reason != "VaultRefused" || !strings.Contains(p.Message, test.want)) {
					t.Errorf("err = %v, want one about %q", err, test.want)
				}
			}
		})
	}
}
