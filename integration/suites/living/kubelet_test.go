package living_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
)

// kubelet is the joining part of a machine's kubelet.
type kubelet struct {
	clients kubernetes.Interface
	// private is its key, and certificate is its last certificate.
	private     *ecdsa.PrivateKey
	certificate []byte
}

// withToken returns a kubelet that only has a bootstrap token.
func (s *server) withToken(t testing.TB, token string) *kubelet {
	t.Helper()
	config := rest.AnonymousClientConfig(s.RESTConfig())
	config.BearerToken = token
	return s.kubelet(t, config)
}

// withCertificate returns a kubelet that has a client certificate.
func (s *server) withCertificate(t testing.TB, k *kubelet) *kubelet {
	t.Helper()
	private, err := x509.MarshalECPrivateKey(k.private)
	must(t, err)
	config := rest.AnonymousClientConfig(s.RESTConfig())
	config.CertData, config.KeyData = k.certificate, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})
	return s.kubelet(t, config)
}

func (s *server) kubelet(t testing.TB, config *rest.Config) *kubelet {
	t.Helper()
	clients, err := kubernetes.NewForConfig(config)
	must(t, err)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return &kubelet{clients: clients, private: private}
}

// groups returns the kubelet's groups according to the API server.
func (k *kubelet) groups(t testing.TB) ([]string, error) {
	t.Helper()
	review, err := k.clients.AuthenticationV1().SelfSubjectReviews().Create(context.Background(), selfReview(), metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return review.Status.UserInfo.Groups, nil
}

// askClient requests a client certificate in the name of a node, and returns the name of the request.
func (k *kubelet) askClient(t testing.TB, node string) string {
	t.Helper()
	return k.ask(t, certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.UsageClientAuth, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	})
}

// askServing requests a serving certificate for a node and an address.
func (k *kubelet) askServing(t testing.TB, node, address string) string {
	t.Helper()
	return k.ask(t, certificatesv1.KubeletServingSignerName, certificatesv1.UsageServerAuth, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		DNSNames: []string{node}, IPAddresses: []net.IP{net.ParseIP(address)},
	})
}

func (k *kubelet) ask(t testing.TB, signer string, usage certificatesv1.KeyUsage, template *x509.CertificateRequest) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, k.private)
	must(t, err)
	request, err := k.clients.CertificatesV1().CertificateSigningRequests().Create(context.Background(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	return request.Name
}

// receive waits until a request was approved and signed.
func (k *kubelet) receive(t testing.TB, s *server, request string) {
	t.Helper()
	lab.Eventually(t, patience, func() error {
		current := s.request(t, request)
		if len(current.Status.Certificate) == 0 {
			return fmt.Errorf("request %s has no certificate: %+v", request, current.Status)
		}
		k.certificate = current.Status.Certificate
		return nil
	})
}

func (s *server) request(t testing.TB, name string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must(t, s.Client.Get(context.Background(), client.ObjectKeyFromObject(request), request))
	return request
}

// bootToken returns the token in the boot data of a node.
func (l *living) bootToken(t testing.TB, role, node string) string {
	t.Helper()
	var secret corev1.Secret
	must(t, theLab.Client.Get(context.Background(), client.ObjectKey{
		Namespace: key.Namespace(l.id), Name: key.BootDataName(role, l.id, node),
	}, &secret))
	config, err := bootdata.Decode(string(secret.Data[nodepod.UserData]))
	must(t, err)
	for _, file := range inlined.FindAllSubmatch(config, -1) {
		content, err := url.PathUnescape(string(file[1]))
		must(t, err)
		if found := tokenOf.FindStringSubmatch(content); found != nil {
			return found[1]
		}
	}
	t.Fatalf("the boot data of node %s has no bootstrap token", node)
	return ""
}

var (
	// inlined matches the contents of files in the private part of boot data.
	inlined = regexp.MustCompile(`"data:,([^"]*)"`)
	tokenOf = regexp.MustCompile(`token: ([a-z0-9]{6}\.[a-z0-9]{16})`)
)
