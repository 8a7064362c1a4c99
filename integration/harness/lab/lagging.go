package lab

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/observe"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/service"
)

// Lagging is a client that reads each object of one cluster a number of versions late. Every read of the KVMConfig,
// which starts a reconcile, advances all objects by one version. So a world at rest is eventually seen in its final
// state, as with a real cache that lags.
type Lagging struct {
	client.Client
	cluster string
	lag     int

	mu      sync.Mutex
	objects map[lagKey]*history
}

type lagKey struct {
	kind schema.GroupVersionKind
	name types.NamespacedName
}

// history is the history of one object. A nil version means that it did not exist.
type history struct {
	versions []client.Object
	shown    int
}

// Lag returns a Lagging client over the driver's cache, for the cluster with the given id.
func (d *Driver) Lag(t *testing.T, id string, versions int) *Lagging {
	t.Helper()
	l := &Lagging{cluster: id, lag: versions, objects: map[lagKey]*history{}}
	kinds := append(service.CreatedKinds(), &v1alpha1.KVMConfig{})
	for _, kind := range kinds {
		informer, err := d.cache.GetInformer(context.Background(), kind)
		if err != nil {
			t.Fatal(err)
		}
		gvk, err := apiutil.GVKForObject(kind, d.scheme)
		if err != nil {
			t.Fatal(err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { l.record(gvk, object.(client.Object), false) },
			UpdateFunc: func(_, object any) { l.record(gvk, object.(client.Object), false) },
			DeleteFunc: func(object any) {
				if o, ok := object.(client.Object); ok {
					l.record(gvk, o, true)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = informer.RemoveEventHandler(registration) }) // the informer ends with the test
	}
	return l
}

func (l *Lagging) record(gvk schema.GroupVersionKind, object client.Object, deleted bool) {
	if config, ok := object.(*v1alpha1.KVMConfig); ok && config.Spec.Cluster.ID != l.cluster || !ok && object.GetLabels()[key.LabelGSCluster] != l.cluster {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := lagKey{gvk, client.ObjectKeyFromObject(object)}
	h := l.objects[k]
	if h == nil {
		h = &history{versions: []client.Object{nil}}
		l.objects[k] = h
	}
	if deleted {
		object = nil
	}
	h.versions = append(h.versions, object)
	h.shown = max(h.shown, len(h.versions)-1-l.lag)
}

// tick advances every object by one version.
func (l *Lagging) tick() {
	for _, h := range l.objects {
		h.shown = min(h.shown+1, len(h.versions)-1)
	}
}

// Caught reports whether the shown versions are the latest.
func (l *Lagging) Caught() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.objects {
		if h.shown != len(h.versions)-1 {
			return false
		}
	}
	return true
}

// Get returns an earlier version.
func (l *Lagging) Get(ctx context.Context, name client.ObjectKey, into client.Object, options ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(into, l.Scheme())
	if err != nil {
		return err
	}
	if !l.knows(gvk) {
		return l.Client.Get(ctx, name, into, options...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := into.(*v1alpha1.KVMConfig); ok {
		defer l.tick()
	}
	h := l.objects[lagKey{gvk, name}]
	if h == nil || h.versions[h.shown] == nil {
		return errors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, name.Name)
	}
	return assign(into, h.versions[h.shown])
}

// List returns earlier versions.
func (l *Lagging) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	listKind, err := apiutil.GVKForObject(into, l.Scheme())
	if err != nil {
		return err
	}
	gvk := listKind
	gvk.Kind = gvk.Kind[:len(gvk.Kind)-len("List")]
	if !l.knows(gvk) {
		return l.Client.List(ctx, into, options...)
	}
	o := (&client.ListOptions{}).ApplyOptions(options)
	l.mu.Lock()
	defer l.mu.Unlock()
	var items []runtime.Object
	for k, h := range l.objects {
		object := h.versions[h.shown]
		if k.kind == gvk && object != nil && (o.Namespace == "" || o.Namespace == k.name.Namespace) && indexed(object, o.FieldSelector) {
			items = append(items, object.DeepCopyObject())
		}
	}
	return meta.SetList(into, items)
}

// knows reports whether the history of a kind is recorded.
func (l *Lagging) knows(gvk schema.GroupVersionKind) bool {
	for _, kind := range append(service.CreatedKinds(), &v1alpha1.KVMConfig{}) {
		if known, err := apiutil.GVKForObject(kind, l.Scheme()); err == nil && known == gvk {
			return true
		}
	}
	return false
}

// indexed applies the cache's indexes.
func indexed(object client.Object, selector fields.Selector) bool {
	if selector == nil {
		return true
	}
	for _, r := range selector.Requirements() {
		switch r.Field {
		case apply.IndexOwner:
			if !slices.Contains(apply.OwnerOf(object), r.Value) {
				return false
			}
		case observe.IndexCluster:
			if object.GetLabels()[key.LabelGSCluster] != r.Value {
				return false
			}
		default:
			panic(fmt.Sprintf("no index %q here", r.Field))
		}
	}
	return true
}

func assign(into, from client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, into)
}
