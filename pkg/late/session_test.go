package late_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	made "github.com/kvm-operator/kvm-operator/integration/harness/definitions"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	multusv1 "github.com/kvm-operator/kvm-operator/pkg/apis/multus/v1"
	"github.com/kvm-operator/kvm-operator/pkg/kubevirt"
	"github.com/kvm-operator/kvm-operator/pkg/late"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/definitions"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// names collects the requests that a controller gets.
type names struct {
	mu  sync.Mutex
	got map[string]int
}

// Reconcile notes the name.
func (n *names) Reconcile(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.got == nil {
		n.got = map[string]int{}
	}
	n.got[request.Name]++
	return reconcile.Result{}, nil
}

func (n *names) count(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.got[name]
}

// operator is a manager with a session, a controller of one of its kinds, and a controller of ConfigMaps.
type operator struct {
	*testing.T
	session *late.Session
	// changes counts the calls of Changed, and asked the requests.
	changes, asked atomic.Int32
	// late and others are what the two controllers get.
	late, others names
}

type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// start runs an operator until the test ends.
func start(t *testing.T, definitionNames []string, kinds ...client.Object) *operator {
	t.Helper()
	o := &operator{T: t}
	counted := rest.CopyConfig(config)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			o.asked.Add(1)
			return next.RoundTrip(r)
		})
	})
	m, err := ctrl.NewManager(counted, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: managed})
	o.do(err)
	known := &definitions.Definitions{}
	mapper := meta.NewDefaultRESTMapper(nil)
	multus := multusv1.GroupVersion
	mapper.AddSpecific(multus.WithKind("NetworkAttachmentDefinition"), multus.WithResource(multusv1.Resource), multus.WithResource("net-attach-def"), meta.RESTScopeNamespace)
	mapper.Add(kubevirtv1.VirtualMachineGroupVersionKind, meta.RESTScopeNamespace)
	mapper.Add(kubevirtv1.VirtualMachineInstanceGroupVersionKind, meta.RESTScopeNamespace)
	o.session = late.New(late.Options{
		Name: "test", Definitions: known, Names: definitionNames, Kinds: kinds, REST: m.GetConfig(), HTTP: m.GetHTTPClient(),
		Scheme: scheme, Mapper: mapper, Clock: clock.RealClock{}, Changed: func() { o.changes.Add(1) },
	})
	o.do(errors.Join(known.AddTo(t.Context(), m, nil, definitionNames...), m.Add(o.session)))
	o.control(m, "late", &o.late, o.session.Source(kinds[0], &handler.EnqueueRequestForObject{}))
	o.control(m, "others", &o.others, source.Kind[client.Object](m.GetCache(), &corev1.ConfigMap{}, &handler.EnqueueRequestForObject{}))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended with %v", err)
		}
	})
	return o
}

func (o *operator) control(m ctrl.Manager, name string, r reconcile.Reconciler, s source.Source) {
	o.Helper()
	c, err := controller.New(name, m, controller.Options{Reconciler: r})
	o.do(err)
	o.do(c.Watch(s))
}

func (o *operator) do(err error) {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
}

// until waits for a condition, which says what is missing.
func (o *operator) until(condition func() error) {
	o.Helper()
	ctx, cancel := context.WithTimeout(o.Context(), 30*time.Second)
	defer cancel()
	o.do(poll.Until(ctx, 10*time.Millisecond, nil, func(context.Context) error { return condition() }))
}

// state waits for a state.
func (o *operator) state(want late.State) {
	o.Helper()
	o.until(func() error {
		view := o.session.View()
		if view.State != want || (want == late.Installed) != (view.Engine != nil && view.Reader != nil) {
			return fmt.Errorf("the session is %v, want %v", view.State, want)
		}
		return nil
	})
}

// told waits until a controller got a name at least so often.
func (o *operator) told(which *names, name string, times int) {
	o.Helper()
	o.until(func() error {
		if got := which.count(name); got < times {
			return fmt.Errorf("the controller got %s %d times", name, got)
		}
		return nil
	})
}

func (o *operator) install(all ...*apiextensionsv1.CustomResourceDefinition) {
	o.Helper()
	for _, definition := range all {
		o.do(direct.Create(o.Context(), definition.DeepCopy()))
		o.Cleanup(func() {
			if err := remove(context.Background(), definition.Name); err != nil {
				o.Error(err)
			}
		})
	}
}

// remove deletes a definition and waits until it is gone.
func remove(ctx context.Context, name string) error {
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := client.IgnoreNotFound(direct.Delete(ctx, definition)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return poll.Until(ctx, 20*time.Millisecond, nil, func(ctx context.Context) error {
		err := direct.Get(ctx, client.ObjectKeyFromObject(definition), definition)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s still exists: %w", name, errors.Join(err))
	})
}

// attachment creates an object, as soon as the API server serves its kind.
func (o *operator) attachment(name string) {
	o.Helper()
	o.until(func() error {
		return direct.Create(o.Context(), &multusv1.NetworkAttachmentDefinition{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: multusv1.NetworkAttachmentDefinitionSpec{Config: "{}"},
		})
	})
}

// TestKindsComeAndGo: absent, installed, objects seen, gone, installed again; a controller of other kinds works all the
// time.
func TestKindsComeAndGo(t *testing.T) {
	o := start(t, []string{made.Attachments}, &multusv1.NetworkAttachmentDefinition{})
	o.state(late.Absent)
	o.do(direct.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "works-while-absent"}}))
	o.told(&o.others, "works-while-absent", 1)
	for _, round := range []string{"first", "second", "third"} {
		o.install(made.Multus())
		o.attachment(round)
		o.state(late.Installed)
		o.told(&o.late, round, 1)
		o.writesAndReads(round)
		changes := o.changes.Load()
		o.do(remove(t.Context(), made.Attachments))
		o.state(late.Absent)
		if o.changes.Load() == changes {
			t.Error("the end of the session was not reported")
		}
	}
	if got := o.late.count("first"); got > 3 {
		t.Errorf("an object of the first session was reported %d times", got)
	}
}

// writesAndReads: the engine creates an object, asks nothing at rest, and prunes by the index of the session's cache.
func (o *operator) writesAndReads(name string) {
	o.Helper()
	engine := o.session.View().Engine
	owner := ownership.Owner{Kind: "Test.example.com", Namespace: "default", Name: name, UID: "1", Handler: "test"}
	wanted := apply.Set{
		Owner: owner, Places: apply.Places{Namespaces: []string{"default"}}, Kinds: []client.Object{&multusv1.NetworkAttachmentDefinition{}},
		Objects: []client.Object{&multusv1.NetworkAttachmentDefinition{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-made"}, Spec: multusv1.NetworkAttachmentDefinitionSpec{Config: "{}"},
		}},
	}
	o.do(engine.Apply(o.Context(), wanted))
	o.told(&o.late, name+"-made", 1)
	before := o.asked.Load()
	o.do(engine.Apply(o.Context(), wanted))
	if sent := o.asked.Load() - before; sent > 0 {
		o.Errorf("%d requests at rest", sent)
	}
	wanted.Objects = nil
	o.do(engine.Apply(o.Context(), wanted))
	o.told(&o.late, name+"-made", 2)
	if err := direct.Get(o.Context(), client.ObjectKey{Namespace: "default", Name: name + "-made"}, &multusv1.NetworkAttachmentDefinition{}); !apierrors.IsNotFound(err) {
		o.Errorf("err = %v, want the object pruned", err)
	}
}

// TestAllKindsAreNeeded: one of two is not enough, and the end of one ends the session.
func TestAllKindsAreNeeded(t *testing.T) {
	all, err := made.KubeVirt(t.Context(), made.VirtualMachines, made.VirtualMachineInstances)
	if err != nil {
		t.Fatal(err)
	}
	all = made.WithoutSchemas(all)
	o := start(t, []string{kubevirt.DefinitionVirtualMachines, kubevirt.DefinitionVirtualMachineInstances}, &kubevirtv1.VirtualMachine{}, &kubevirtv1.VirtualMachineInstance{})
	o.state(late.Absent)
	o.install(all[0])
	o.until(func() error {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := direct.Get(t.Context(), client.ObjectKeyFromObject(all[0]), definition); err != nil || len(definition.Status.Conditions) < 2 {
			return fmt.Errorf("conditions %v: %w", definition.Status.Conditions, errors.Join(err))
		}
		return nil
	})
	o.state(late.Absent)
	o.install(all[1])
	o.state(late.Installed)
	o.do(remove(t.Context(), all[0].Name))
	o.state(late.Absent)
}

// TestNothingIsLeftBehind: rounds leave no goroutine, and no request is sent while the kinds are absent.
func TestNothingIsLeftBehind(t *testing.T) {
	o := start(t, []string{made.Attachments}, &multusv1.NetworkAttachmentDefinition{})
	o.state(late.Absent)
	for range 3 {
		o.install(made.Multus())
		o.state(late.Installed)
		o.do(remove(t.Context(), made.Attachments))
		o.state(late.Absent)
	}
	o.until(func() error {
		stacks := make([]byte, 4<<20)
		all := string(stacks[:runtime.Stack(stacks, true)])
		if n := strings.Count(all, "late.(*connection)"); n > 0 {
			return fmt.Errorf("%d goroutines of sessions that have ended", n)
		}
		return nil
	})
	sent := o.asked.Load()
	time.Sleep(3 * time.Second) // the absence of requests has no event
	// The definition and the ConfigMaps are watched, and one of the watches may begin again in that time.
	if more := o.asked.Load() - sent; more > 1 {
		t.Errorf("%d requests in 3 s while the kinds are absent", more)
	}
}

// managed allows several managers in one process.
var managed = controllerconfig.Controller{SkipNameValidation: ptr.To(true)}
