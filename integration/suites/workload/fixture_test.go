package workload_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/workload"
)

// serverName is a name in the certificates of all API servers here.
const serverName = "localhost"

// soon bounds operations that take milliseconds on a machine without other work.
const soon = 10 * time.Second

// kinds returns the kinds that are cached besides Nodes and certificate requests.
func kinds() []client.Object {
	return []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}, &corev1.ServiceAccount{}}
}

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), meta.RESTScopeRoot)
	for _, kind := range []string{"ConfigMap", "Secret", "ServiceAccount"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	return m
}

// changes counts the calls of Options.Changed.
type changes struct {
	mu    sync.Mutex
	count map[string]int
}

func (c *changes) note(name types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[name.Name]++
}

func (c *changes) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count[name]
}

// world is a running pool.
type world struct {
	*workload.Pool
	*changes
	t *testing.T
	// stop stops the pool and waits until it has ended.
	stop func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := newStillWorld(t)
	w.start()
	return w
}

// newStillWorld creates a pool that is not started yet.
func newStillWorld(t *testing.T) *world {
	t.Helper()
	c := &changes{count: map[string]int{}}
	return &world{
		changes: c, t: t,
		Pool: workload.NewPool(workload.Options{Kinds: kinds(), Scheme: scheme.Scheme, Mapper: mapper(), Changed: c.note}),
	}
}

func (w *world) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Start(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				w.t.Error(err)
			}
		case <-time.After(soon):
			w.t.Error("the pool does not end")
		}
	})
	w.t.Cleanup(w.stop)
}

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

// accessTo returns the access to an API server, at its own address unless others are given.
func accessTo(cluster *managementcluster.Cluster, addresses ...string) workload.Access {
	return accessBy(cluster.RESTConfig(), addresses...)
}

func accessBy(config *rest.Config, addresses ...string) workload.Access {
	if len(addresses) == 0 {
		addresses = []string{addressOf(config)}
	}
	return workload.Access{
		Addresses: addresses, ServerName: serverName, CA: config.CAData, Certificate: config.CertData, Key: config.KeyData,
	}
}

func addressOf(config *rest.Config) string { return strings.TrimPrefix(config.Host, "https://") }

// connect waits until the cluster is connected.
func (w *world) connect(name string, a workload.Access) *workload.Cluster {
	w.t.Helper()
	c := w.Ensure(named(name), a)
	awaitState(w.t, c, 3*soon, workload.State{Phase: workload.Connected})
	return c
}

// awaitState waits for a state with any message, and returns how long that took.
func awaitState(t *testing.T, c *workload.Cluster, limit time.Duration, want workload.State) time.Duration {
	t.Helper()
	return await(t, limit, func() error {
		got := c.State()
		got.Message = ""
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("the state is another one (-want +got):\n%s", diff)
		}
		return nil
	})
}

// unreachable returns the state Unreachable with a reason.
func unreachable(reason workload.Reason) workload.State {
	return workload.State{Phase: workload.Unreachable, Reason: reason}
}

// await waits until the condition holds and returns how long that took.
func await(t *testing.T, limit time.Duration, condition func() error) time.Duration {
	t.Helper()
	began := time.Now()
	poll.Eventually(t, limit, 2*time.Millisecond, condition)
	return time.Since(began)
}

// direct returns a client that is independent of the pool.
func direct(t *testing.T, cluster *managementcluster.Cluster) client.Client {
	t.Helper()
	c, err := client.New(cluster.RESTConfig(), client.Options{Scheme: scheme.Scheme, Mapper: mapper()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// must fails the test on an error in preparations.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func makeNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"role": "worker"}}}
}

// create creates an object that is deleted with the test.
func create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	must(t, c.Create(t.Context(), object))
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Delete(context.Background(), object)); err != nil {
			t.Error(err)
		}
	})
}
