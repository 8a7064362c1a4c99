package apply_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kvm-operator/kvm-operator/integration/harness/definitions"
	"github.com/kvm-operator/kvm-operator/integration/harness/tools"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/kubevirt"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// The API server under test and its clients: cached and counted like the operator's, and direct, for everything else.
var (
	cached client.Client
	live   client.Reader
	direct client.Client
	asked  = &requests{}
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	if testing.Short() {
		fmt.Println("left out by -short: these tests need an API server of make tools")
		return 0
	}
	if err := tools.ForEnvtest(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	log.SetLogger(logr.Discard())
	machines, err := definitions.KubeVirt(context.Background(), definitions.VirtualMachines)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	environment := &envtest.Environment{CRDs: machines}
	defer func() { _ = environment.Stop() }()
	config, err := environment.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "the API server does not start:", err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := errors.Join(kubevirt.AddToScheme(scheme.Scheme), connect(ctx, config)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func kinds() []client.Object {
	return []client.Object{
		&appsv1.Deployment{}, &appsv1.StatefulSet{}, &corev1.ConfigMap{}, &corev1.Endpoints{}, &corev1.Namespace{}, &corev1.PersistentVolumeClaim{},
		&corev1.Secret{}, &corev1.Service{}, &corev1.ServiceAccount{}, &discoveryv1.EndpointSlice{}, &networkingv1.Ingress{},
		&networkingv1.NetworkPolicy{}, &rbacv1.ClusterRoleBinding{}, &kubevirtv1.VirtualMachine{},
	}
}

// connect creates clients as service.New does: cached by label, trimmed, reading their own writes.
func connect(ctx context.Context, config *rest.Config) error {
	options := cache.Options{DefaultTransform: trim, ByObject: map[client.Object]cache.ByObject{}}
	for _, kind := range kinds() {
		options.ByObject[kind] = cache.ByObject{Label: labels.SelectorFromSet(labels.Set{key.LabelManagedBy: ownership.Operator})}
	}
	counted := rest.CopyConfig(config)
	counted.QPS, counted.Burst = 1000, 1000
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counter{next: next, requests: asked} })
	m, err := ctrl.NewManager(counted, ctrl.Options{
		Scheme: scheme.Scheme, Cache: options, Metrics: metricsserver.Options{BindAddress: "0"},
		Client: client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
	})
	if err != nil {
		return err
	}
	for _, kind := range kinds() {
		if err := m.GetFieldIndexer().IndexField(ctx, kind, apply.IndexOwner, apply.OwnerOf); err != nil {
			return err
		}
	}
	go func() { _ = m.Start(ctx) }() // a cache that does not start is detected below
	if !m.GetCache().WaitForCacheSync(ctx) {
		return fmt.Errorf("the caches are not filled")
	}
	cached, live = m.GetClient(), m.GetAPIReader()
	direct, err = client.New(config, client.Options{Scheme: scheme.Scheme})
	return err
}

// trim is what the operator's cache does: it keeps only the names of field managers.
func trim(object any) (any, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return object, nil //nolint:nilerr // a value that is not an object is passed on
	}
	var managers []metav1.ManagedFieldsEntry
	for _, entry := range accessor.GetManagedFields() {
		if entry.Manager == ownership.Operator && entry.Subresource == "" {
			managers = append(managers, metav1.ManagedFieldsEntry{Manager: entry.Manager, Operation: entry.Operation})
		}
	}
	accessor.SetManagedFields(managers)
	return object, nil
}

// requests are those that the cached client sent, except watches.
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
func (c *counter) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Query().Get("watch") == "" {
		c.requests.mu.Lock()
		c.requests.list = append(c.requests.list, request.Method+" "+request.URL.Path)
		c.requests.mu.Unlock()
	}
	return c.next.RoundTrip(request)
}

// verbs returns the methods of requests.
func verbs(list []string) []string {
	var methods []string
	for _, request := range list {
		method, _, _ := strings.Cut(request, " ")
		methods = append(methods, method)
	}
	return methods
}

// seen waits until the cache shows the object as the API server has it.
func seen(t *testing.T, object client.Object) {
	t.Helper()
	name := client.ObjectKeyFromObject(object)
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		there, here := object.DeepCopyObject().(client.Object), object.DeepCopyObject().(client.Object)
		errThere, errHere := direct.Get(ctx, name, there), cached.Get(ctx, name, here)
		if apierrors.IsNotFound(errThere) || there.GetLabels()[key.LabelManagedBy] != ownership.Operator {
			return apierrors.IsNotFound(errHere), nil
		}
		return errHere == nil && here.GetResourceVersion() == there.GetResourceVersion(), errThere
	})
	if err != nil {
		t.Fatalf("the cache does not show %T %s: %v", object, name, err)
	}
}

// now returns the object as the API server has it.
func now[T client.Object](t *testing.T, object T) T {
	t.Helper()
	current := object.DeepCopyObject().(T)
	if err := direct.Get(t.Context(), client.ObjectKeyFromObject(object), current); err != nil {
		t.Fatal(err)
	}
	return current
}

// do fails the test if a request of another client fails.
func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// equal is the one assertion.
func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
