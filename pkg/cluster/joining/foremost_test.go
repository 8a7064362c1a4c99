package joining

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestFloodsOfRequestsHideNone: requests of kubelets are processed even among thousands of others.
func TestFloodsOfRequestsHideNone(t *testing.T) {
	made := func(name, user string, age time.Duration, answered bool) certificatesv1.CertificateSigningRequest {
		r := certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
			Spec:       certificatesv1.CertificateSigningRequestSpec{Username: user},
		}
		if answered {
			r.Status.Certificate = []byte("x")
		}
		return r
	}
	var all []certificatesv1.CertificateSigningRequest
	for i := range 5000 {
		all = append(all, made(fmt.Sprintf("tenant-%d", i), "tenant", time.Hour, false), made(fmt.Sprintf("flood-%d", i), "system:node:bad", time.Hour, false),
			made(fmt.Sprintf("old-%d", i), "system:node:old", time.Hour, true))
	}
	all = append(all, made("kubelet", "system:node:good", 0, false), made("joins", "system:bootstrap:abcdef", 0, false))
	seen, of := map[string]bool{}, map[string]int{}
	looked := Foremost(all)
	for _, r := range looked {
		seen[r.Name] = true
		of[r.Spec.Username]++
	}
	if len(looked) != MostRequests || !seen["kubelet"] || !seen["joins"] || of["system:node:bad"] != mostOfNode || of["system:node:old"] != 0 {
		t.Errorf("%d are checked, the kubelet's: %t, the new node's: %t, of each: %v", len(looked), seen["kubelet"], seen["joins"], of)
	}
}

// TestSignaturesAreCheckedOnce: the same request is parsed only once.
func TestSignaturesAreCheckedOnce(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	first, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := parse(text); err != nil || again != first {
		t.Errorf("it was read again: %v", err)
	}
	text[len(text)/2] ^= 1
	if other, err := parse(text); err == nil && other == first {
		t.Error("another request is taken for it")
	}
	for i := range 3 * mostRead {
		_, _ = parse([]byte(fmt.Sprint("x", i))) // requests that cannot be parsed are cached too
	}
	if read.Len() > mostRead {
		t.Errorf("%d requests are remembered", read.Len())
	}
}
