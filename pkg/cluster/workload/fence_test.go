package workload

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
)

// TestAClosedFenceLetsAClusterBeReadAndNotChanged also checks that a refused request does not affect the state of the
// cluster.
func TestAClosedFenceLetsAClusterBeReadAndNotChanged(t *testing.T) {
	var asked atomic.Int64
	l := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusTeapot)
	}).link(t)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), meta.RESTScopeRoot)
	closed := fence.New("giantswarm/kvm-operator", time.Hour, fence.SinceBoot)
	s := &session{link: l, options: Options{Scheme: scheme.Scheme, Mapper: mapper, Fence: closed}, lost: t.Context()}
	if err := s.makeClients(); err != nil {
		t.Fatal(err)
	}
	// The client that waits for its cache sends through the same transport.
	writer := s.live.(pagedReader).Reader.(client.Client)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if err := writer.Create(t.Context(), node); !errors.Is(err, fence.ErrRefused) || asked.Load() != 0 {
		t.Errorf("a write through the closed fence: %v, the server is asked %d times", err, asked.Load())
	}
	if _, failure := l.tally(); failure != nil {
		t.Errorf("the link has noted %v", failure)
	}
	if err := s.live.List(t.Context(), &corev1.NodeList{}); err == nil || asked.Load() != 1 {
		t.Errorf("a read through the closed fence: %v, the server is asked %d times", err, asked.Load())
	}
	closed.Renewed(closed.Now())
	if err := writer.Create(t.Context(), node); errors.Is(err, fence.ErrRefused) || asked.Load() != 2 {
		t.Errorf("a write through the open fence: %v, the server is asked %d times", err, asked.Load())
	}
}
