package addons_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
)

// TestATokenOfTheOperatorLeadsToACertificate: a real API server puts the holder of a token into the group that the
// add-on RBAC allows to request, and writes into the request what the decision looks for. Without the add-on, and with
// an expired or unknown token, no request is possible.
func TestATokenOfTheOperatorLeadsToACertificate(t *testing.T) {
	config := startAPIServer(t)
	admin, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	tokens := joining.TokensAt("abcdef.0123456789abcdef", time.Now())
	node := joining.Node{Role: "worker", ID: "w0aaa"}
	old := joining.TokensAt("abcdef.0123456789abcdef", time.Now().Add(-3*joining.Period)).Current(node)
	for _, token := range []joining.Token{tokens.Current(node), old} {
		if err := admin.Create(t.Context(), joining.Secret(token)); err != nil {
			t.Fatal(err)
		}
	}
	pod := "worker-w0aaa-1-x"
	if _, err := ask(t, config, tokens.Current(node).String(), pod); !apierrors.IsForbidden(err) {
		t.Errorf("without the add-on the API server answers %v, want forbidden", err)
	}
	for _, object := range addons.RBAC(params()) {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for name, token := range map[string]string{"expired": old.String(), "unknown": "abcdef.0123456789abcdef"} {
		if _, err := ask(t, config, token, pod); !apierrors.IsUnauthorized(err) {
			t.Errorf("with the %s token the API server answers %v, want unauthorized", name, err)
		}
	}
	request, err := ask(t, config, tokens.Current(node).String(), pod)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		node joining.Node
		want joining.Verdict
	}{"its own": {node, joining.Approve}, "another one": {joining.Node{Role: "master", ID: "m0aaa"}, joining.Wait}} {
		world := joining.World{Pods: map[string]joining.Pod{pod: {Node: &test.node}}, Tokens: tokens}
		if diff := cmp.Diff(test.want, joining.Decide(*request, world).Verdict); diff != "" {
			t.Errorf("another decision on %+v for %s (-want +got):\n%s", request.Spec, name, diff)
		}
	}
}

// ask requests a client certificate as a kubelet does, and returns the request as the API server stores it.
func ask(t *testing.T, config *rest.Config, token, node string) (*certificatesv1.CertificateSigningRequest, error) {
	t.Helper()
	kubelet := rest.AnonymousClientConfig(config)
	kubelet.BearerToken = token
	c, err := client.New(kubelet, client.Options{Scheme: scheme.Scheme, Mapper: mapper()})
	if err != nil {
		t.Fatal(err)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, private)
	if err != nil {
		t.Fatal(err)
	}
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	return request, c.Create(t.Context(), request)
}

// mapper knows the one kind that a kubelet requests, because a token may not use discovery.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), meta.RESTScopeRoot)
	return m
}
