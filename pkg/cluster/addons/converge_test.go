package addons_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// requests are those that were sent, except watches.
type requests struct {
	mu   sync.Mutex
	list []string
}

// take returns the requests since the last call.
func (r *requests) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list = nil
	return list
}

type counter struct {
	next     http.RoundTripper
	requests *requests
}

// RoundTrip records the request and sends it.
func (c counter) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Query().Get("watch") == "" {
		c.requests.mu.Lock()
		c.requests.list = append(c.requests.list, request.Method+" "+request.URL.Path)
		c.requests.mu.Unlock()
	}
	return c.next.RoundTrip(request)
}

// startAPIServer starts a real API server, of this repository unless another is configured.
func startAPIServer(t *testing.T) *rest.Config {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: it needs the API server of make tools")
	}
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		tools, err := filepath.Abs("../../../.tools")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(tools, "kube-apiserver")); err != nil {
			t.Fatalf("this test needs a real API server, run make tools: %s", err)
		}
		t.Setenv("KUBEBUILDER_ASSETS", tools)
	}
	log.SetLogger(logr.Discard())
	environment := &envtest.Environment{}
	environment.ControlPlane.GetAPIServer().Configure().Set("service-cluster-ip-range", params().Cluster.Kubernetes.API.ClusterIPRange).
		Set("enable-bootstrap-token-auth", "true").Set("authorization-mode", "Node,RBAC").Append("enable-admission-plugins", "NodeRestriction")
	// An API server that was started but does not become ready in time has to be stopped as well.
	t.Cleanup(func() { _ = environment.Stop() })
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// connect creates a client like the operator's: cached by label, reading its own writes, counted.
func connect(t *testing.T, config *rest.Config) (ctrl.Manager, *requests) {
	t.Helper()
	asked := &requests{}
	counted := rest.CopyConfig(config)
	counted.QPS, counted.Burst = 1000, 1000
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next: next, requests: asked} })
	options := cache.Options{ByObject: map[client.Object]cache.ByObject{}}
	for _, kind := range kinds() {
		options.ByObject[kind] = cache.ByObject{Label: labels.SelectorFromSet(labels.Set{key.LabelManagedBy: key.Operator})}
	}
	m, err := ctrl.NewManager(counted, ctrl.Options{
		Scheme: everyKind(t), Cache: options, Metrics: metricsserver.Options{BindAddress: "0"},
		Client: client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds() {
		if err := m.GetFieldIndexer().IndexField(t.Context(), kind, apply.IndexOwner, apply.OwnerOf); err != nil {
			t.Fatal(err)
		}
	}
	run(t, m)
	return m, asked
}

// everyKind is the scheme of all kinds.
func everyKind(t *testing.T) *runtime.Scheme {
	t.Helper()
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), apiextensionsv1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	return known
}

func run(t *testing.T, m ctrl.Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		_ = m.Start(ctx) // a cache that does not start is detected below
	}()
	if !m.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the caches are not filled")
	}
}

func kinds() []client.Object { return addons.Kinds() }

// pass applies everything and returns the requests that it sent.
func pass(t *testing.T, engine *apply.Engine, asked *requests, p addons.Params) []string {
	t.Helper()
	objects, err := objectsOf(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range joining.TokensAt("abcdef.0123456789abcdef", time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)).Accepted(joining.Node{Role: "worker", ID: "w0aaa"}, time.Time{}) {
		objects = append(objects, joining.Secret(token))
	}
	asked.take()
	owner := ownership.Owner{Kind: key.KindKVMConfig, Namespace: "default", Name: "abc12", UID: "1", Handler: "addons"}
	if err := engine.Apply(t.Context(), apply.Set{Owner: owner, Places: apply.Places{Everywhere: true}, Objects: objects, Kinds: kinds()}); err != nil {
		t.Fatal(err)
	}
	return asked.take()
}

// TestAddonsConverge covers objects in workload clusters: a real API server accepts every object, what it adds does not
// make the engine write again, neither now nor after a restart, and disabled add-ons are removed.
func TestAddonsConverge(t *testing.T) {
	m, asked := connect(t, startAPIServer(t))
	engine := apply.New(m.GetClient(), m.GetAPIReader(), clock.RealClock{})
	for _, request := range pass(t, engine, asked, params()) {
		if !strings.HasPrefix(request, "POST ") {
			t.Errorf("creating takes %s", request)
		}
	}
	none := func(what string, engine *apply.Engine, p addons.Params) {
		t.Helper()
		if diff := cmp.Diff([]string(nil), pass(t, engine, asked, p)); diff != "" {
			t.Errorf("requests of the %s (-want +got):\n%s", what, diff)
		}
	}
	none("second pass", engine, params())
	engine = apply.New(m.GetClient(), m.GetAPIReader(), clock.RealClock{})
	none("first pass after a restart", engine, params())

	other := func(p *addons.Params) { everything(p); p.Cluster.Kubernetes.DNS = params().Cluster.Kubernetes.DNS }
	if len(pass(t, engine, asked, params(other))) == 0 {
		t.Error("a change is not written")
	}
	none("pass after a change", engine, params(other))
	none("pass after a change and a restart", apply.New(m.GetClient(), m.GetAPIReader(), clock.RealClock{}), params(other))

	off := func(p *addons.Params) {
		p.KubeProxy.Disabled, p.CoreDNS.Disabled, p.CNI.Type = true, true, addons.CNINone
	}
	pass(t, engine, asked, params(off))
	left := &appsv1.DeploymentList{}
	if err := m.GetAPIReader().List(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	for _, deployment := range left.Items {
		if deployment.DeletionTimestamp == nil {
			t.Errorf("Deployment %s stays although it is switched off", deployment.Name)
		}
	}
	daemons := &appsv1.DaemonSetList{}
	if err := m.GetAPIReader().List(t.Context(), daemons); err != nil || len(daemons.Items) > 0 {
		t.Errorf("%d DaemonSets stay although they are switched off, %v", len(daemons.Items), err)
	}
}
