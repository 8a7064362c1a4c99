package workload

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// hostile is an API server controlled by an attacker who owns a cluster. It speaks protobuf like a real one, and
// misbehaves on some requests.
type hostile struct {
	address           string
	authority, client pki.KeyPair
	// watch and list replace the correct behavior; nil, or a return value of false, keeps it.
	watch, list func(w http.ResponseWriter, r *http.Request, resource string) bool

	mu    sync.Mutex
	paths []string
}

// resources are the kinds that the operator reads here.
var resources = map[string][2]string{
	"nodes": {"v1", "Node"}, "pods": {"v1", "Pod"}, "configmaps": {"v1", "ConfigMap"},
	"certificatesigningrequests": {"certificates.k8s.io/v1", "CertificateSigningRequest"},
	"customresourcedefinitions":  {"apiextensions.k8s.io/v1", "CustomResourceDefinition"},
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	h := &hostile{}
	issuer := pki.Embedded{Clock: clock.RealClock{}}
	issue := func(r pki.Request) pki.KeyPair {
		pair, err := issuer.Issue(r, h.authority)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	h.authority = issue(pki.Request{Name: pki.CA, CommonName: "hostile", Usage: pki.UsageAuthority})
	h.client = issue(pki.Request{CommonName: "operator", Usage: pki.UsageClient})
	serving := issue(pki.Request{CommonName: "localhost", DNSNames: []string{"localhost"}, Usage: pki.UsageServer})
	pair, err := tls.X509KeyPair(serving.Certificate, serving.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	h.address = strings.TrimPrefix(server.URL, "https://")
	return h
}

func (h *hostile) access() Access {
	return Access{Addresses: []string{h.address}, ServerName: "localhost", CA: h.authority.Certificate, Certificate: h.client.Certificate, Key: h.client.Key}
}

// ServeHTTP responds like an API server without objects.
func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.paths = append(h.paths, r.Method+" "+r.URL.Path)
	h.mu.Unlock()
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	switch {
	case r.URL.Path == "/readyz":
	case r.URL.Query().Get("watch") == "true":
		if h.watch != nil && h.watch(w, r, resource) {
			return
		}
		stream(w)
		_, _ = w.Write(bookmark(resource)) // it does not matter whether the client has gone
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		if h.list != nil && h.list(w, r, resource) {
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = w.Write(object(resources[resource][0], resources[resource][1]+"List", listMeta("")))
	}
}

// stream begins the response to a watch.
func stream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	w.(http.Flusher).Flush()
}

// put encodes a field of a message.
func put(number protowire.Number, content ...[]byte) []byte {
	size := 0
	for _, c := range content {
		size += len(c)
	}
	field := protowire.AppendVarint(protowire.AppendTag(make([]byte, 0, size+16), number, protowire.BytesType), uint64(size))
	for _, c := range content {
		field = append(field, c...)
	}
	return field
}

func object(apiVersion, kind string, content ...[]byte) []byte {
	return append([]byte("k8s\x00"), append(put(1, put(1, []byte(apiVersion)), put(2, []byte(kind))), put(2, content...)...)...)
}

func event(kind string, object []byte) []byte {
	content := append(put(1, []byte(kind)), put(2, put(1, object))...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), content...)
}

func bookmark(resource string) []byte {
	annotation := put(12, put(1, []byte("k8s.io/initial-events-end")), put(2, []byte("true")))
	return event("BOOKMARK", object(resources[resource][0], resources[resource][1], put(1, put(6, []byte("1")), annotation)))
}

// namedMeta is the metadata of an object that the operator reads.
func namedMeta(name string) []byte {
	return put(1, put(1, []byte(name)), put(3, []byte("default")), put(5, []byte(name)), put(6, []byte("1")),
		put(11, put(1, []byte("giantswarm.io/managed-by")), put(2, []byte("kvm-operator"))))
}

func listMeta(token string) []byte { return put(1, put(2, []byte("1")), put(3, []byte(token))) }

// added is an event of a new object.
func added(resource, name string, content ...[]byte) []byte {
	return event("ADDED", object(resources[resource][0], resources[resource][1], append([][]byte{namedMeta(name)}, content...)...))
}

// times repeats a message.
func times(n int, message []byte) []byte { return []byte(strings.Repeat(string(message), n)) }

// testPool returns a running pool.
func testPool(t *testing.T) *Pool {
	t.Helper()
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(all); err != nil {
			t.Fatal(err)
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), meta.RESTScopeRoot)
	mapper.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), meta.RESTScopeRoot)
	p := NewPool(Options{Kinds: []client.Object{&corev1.ConfigMap{}, &apiextensionsv1.CustomResourceDefinition{}}, Scheme: all, Mapper: mapper})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = p.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return p
}

// until waits for a state of a cluster.
func until(t *testing.T, c *Cluster, limit time.Duration, what string, reached func(State) bool) {
	t.Helper()
	for began := time.Now(); !reached(c.State()); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > limit {
			t.Fatalf("after %s the cluster is not %s: %+v", limit, what, c.State())
		}
	}
}

func connected(s State) bool { return s.Phase == Connected }

// in returns the name of a cluster under test.
func in(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

// TestRedirectionsAreNotFollowed, neither by caches nor by clients, for any method: they may lead into the management
// network.
func TestRedirectionsAreNotFollowed(t *testing.T) {
	var elsewhere []string
	var mu sync.Mutex
	plain := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		elsewhere = append(elsewhere, r.Method+" "+r.URL.Path)
	}))
	defer plain.Close()
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			h := newHostile(t)
			var leads bool
			lead := func(w http.ResponseWriter, r *http.Request, _ string) bool {
				mu.Lock()
				defer mu.Unlock()
				if leads {
					http.Redirect(w, r, plain.URL+r.URL.Path, code)
				}
				return leads
			}
			h.watch, h.list = lead, lead
			c := testPool(t).Ensure(in("leads"), h.access())
			until(t, c, 20*time.Second, "connected", connected)
			mu.Lock()
			leads = true
			mu.Unlock()
			writer, _ := c.Client()
			reader, _ := c.Live()
			secret := &corev1.ConfigMap{}
			secret.Name, secret.Namespace, secret.Data = "a", "default", map[string]string{"key": "secret"}
			for what, err := range map[string]error{
				"create": writer.Create(t.Context(), secret.DeepCopy()), "delete": writer.Delete(t.Context(), secret.DeepCopy()),
				"update": writer.Update(t.Context(), secret.DeepCopy()), "get": reader.Get(t.Context(), in("a"), secret.DeepCopy()),
				"list": reader.List(t.Context(), &corev1.PodList{}),
			} {
				if err == nil {
					t.Errorf("%s has no error", what)
				}
			}
			again := testPool(t).Ensure(in("leads"), h.access()) // its caches are redirected at once
			time.Sleep(time.Second)
			if again.State().Phase == Connected {
				t.Error("caches were filled elsewhere")
			}
		})
	}
	mu.Lock()
	defer mu.Unlock()
	if len(elsewhere) > 0 {
		t.Errorf("%d requests went elsewhere: %q", len(elsewhere), elsewhere)
	}
}

// TestNothingIsSaidWithoutTLS also covers a URL without TLS.
func TestNothingIsSaidWithoutTLS(t *testing.T) {
	var asked bool
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer plain.Close()
	l := linkTo(t, plain.Listener.Addr().String(), &tls.Config{ServerName: "localhost", MinVersion: tls.VersionTLS12})
	_, httpClient := l.config()
	if response, err := httpClient.Get(plain.URL); err == nil {
		_ = response.Body.Close() // the test fails anyway
		t.Error("a request went without TLS")
	}
	if asked {
		t.Error("the server was asked")
	}
}
