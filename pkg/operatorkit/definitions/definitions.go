// Package definitions follows CustomResourceDefinitions by name: whether they exist, and whether those of an operator's
// own kinds have the fields that it needs.
package definitions

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/giantswarm/microerror"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/schema"
)

// reasonOutdated is the reason of the event of a CustomResourceDefinition that the operator cannot work with.
const reasonOutdated = "DefinitionOutdated"

// annotationMissing is an annotation that exists only in memory. It replaces the schema of a CustomResourceDefinition
// and lists the fields that the definition lacks.
const annotationMissing = "kvm-operator.giantswarm.io/missing"

var outdated = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kvm_operator_outdated_definition",
	Help: "1 for each CustomResourceDefinition that lacks a field which the operator needs; it reconciles nothing until that is applied.",
}, []string{"name"})

func init() { metrics.Registry.MustRegister(outdated) }

// Kind is a kind of the operator: its version and its Go type, which is a struct with the fields Spec and possibly Status.
type Kind struct {
	Version string
	Type    reflect.Type
}

// Definitions are CustomResourceDefinitions. An API server drops fields that a definition does not have without an error,
// so an operator that continued with an outdated definition would work with an incomplete spec or status.
type Definitions struct {
	// Events records an event when a definition is outdated; if Events is nil, none is recorded.
	Events events.EventRecorder
	// Kinds are the operator's own kinds, by the names of their definitions. Of others only the existence counts.
	Kinds map[string]Kind
	// Origin is the other program whose definitions may have the same names.
	Origin string

	// caches are by the definition's name; each cache has only that definition.
	caches map[string]client.Reader

	mu sync.Mutex
	// told has the last reported lack of each definition, by name.
	told map[string]string
	// followers are called after each change.
	followers []func()
}

// Exists returns whether there is a definition, as far as its cache is filled.
func (d *Definitions) Exists(ctx context.Context, name string) bool {
	_, there := d.read(ctx, name)
	return there
}

// Established returns the UID of a definition whose kind the API server serves. exists is true for one that is not served
// yet, too; then the UID is empty.
func (d *Definitions) Established(ctx context.Context, name string) (uid types.UID, exists bool) {
	definition, exists := d.read(ctx, name)
	if !exists {
		return "", false
	}
	for _, c := range definition.Status.Conditions {
		if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
			return definition.UID, true
		}
	}
	return "", true
}

func (d *Definitions) read(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, bool) {
	cached, followed := d.caches[name]
	if !followed {
		return nil, false
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	err := cached.Get(ctx, client.ObjectKey{Name: name}, definition)
	return definition, err == nil
}

// Outdated returns what is wrong with the named definitions, and how to fix it. It is empty while they have what the
// operator needs. It reads the caches instead of the last report, so that what they have before the first reconcile counts.
func (d *Definitions) Outdated(ctx context.Context, names ...string) string {
	var parts []string
	for _, name := range names {
		definition, there := d.read(ctx, name)
		if !there {
			continue // the caches are not filled, or there is no definition and therefore no object of the kind
		}
		if missing := definition.Annotations[annotationMissing]; missing != "" {
			parts = append(parts, d.sentence(name, missing))
		}
	}
	return strings.Join(parts, "; ")
}

func (d *Definitions) sentence(name, missing string) string {
	return fmt.Sprintf("CustomResourceDefinition %s lacks %s and is that of %s or of another version of this operator: nothing is reconciled until "+
		"the definitions of this version are applied: helm show crds <chart> | kubectl apply --server-side --force-conflicts -f -", name, missing, d.Origin)
}

// OnChange has f called after each change of a definition. f must not block. It is called before AddTo.
func (d *Definitions) OnChange(f func()) { d.followers = append(d.followers, f) }

// AddTo makes the manager watch the named definitions. The manager starts no controller before these caches are filled.
func (d *Definitions) AddTo(ctx context.Context, m manager.Manager, notice toolscache.WatchErrorHandlerWithContext, names ...string) error {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), meta.RESTScopeRoot)
	d.caches = map[string]client.Reader{}
	for _, name := range names {
		c, err := cache.New(m.GetConfig(), cache.Options{
			HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: mapper, DefaultTransform: d.judge, DefaultWatchErrorHandler: notice,
			ByObject: map[client.Object]cache.ByObject{
				&apiextensionsv1.CustomResourceDefinition{}: {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name)},
			},
		})
		if err != nil {
			return microerror.Mask(err)
		}
		d.caches[name] = c
		informer, err := c.GetInformer(ctx, &apiextensionsv1.CustomResourceDefinition{}, cache.BlockUntilSynced(false))
		if err != nil {
			return microerror.Mask(err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { d.note(ctx, name, object) },
			UpdateFunc: func(_, object any) { d.note(ctx, name, object) },
			DeleteFunc: func(any) { d.note(ctx, name, nil) },
		}); err != nil {
			return microerror.Mask(err)
		}
		if err := m.Add(Cache{c}); err != nil {
			return microerror.Mask(err)
		}
	}
	return nil
}

// Cache is a cache that a manager fills before it starts the controllers.
type Cache struct{ cache.Cache }

// GetCache makes the manager treat it as a cache.
func (c Cache) GetCache() cache.Cache { return c.Cache }

// judge replaces a definition by what it lacks.
func (d *Definitions) judge(object any) (any, error) {
	definition, ok := object.(*apiextensionsv1.CustomResourceDefinition)
	if !ok || len(definition.Spec.Versions) == 0 {
		return object, nil // a tombstone, or trimmed already: client-go passes some objects twice
	}
	trimmed := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name: definition.Name, UID: definition.UID, ResourceVersion: definition.ResourceVersion,
	}}
	for _, c := range definition.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			trimmed.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	if own, ok := d.Kinds[definition.Name]; ok {
		trimmed.Annotations = map[string]string{annotationMissing: schema.Missing(definition, own.Version, own.Type)}
	}
	return trimmed, nil
}

// note records what a definition lacks and reports it once.
func (d *Definitions) note(ctx context.Context, name string, object any) {
	for _, changed := range d.followers {
		changed()
	}
	missing := ""
	definition, there := object.(*apiextensionsv1.CustomResourceDefinition)
	if there {
		missing = definition.Annotations[annotationMissing]
	}
	if !d.change(name, missing) {
		return
	}
	logger := log.FromContext(ctx).WithName("definitions")
	if missing == "" {
		outdated.DeleteLabelValues(name)
		logger.Info("the CustomResourceDefinition has what the operator needs", "name", name)
		return
	}
	outdated.WithLabelValues(name).Set(1)
	logger.Error(nil, d.sentence(name, missing))
	if d.Events != nil {
		d.Events.Eventf(definition, nil, corev1.EventTypeWarning, reasonOutdated, "Reconcile", "%s", d.sentence(name, missing))
	}
}

// change records what a definition lacks and returns whether that differs from before.
func (d *Definitions) change(name, missing string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.told[name] == missing {
		return false
	}
	if d.told == nil {
		d.told = map[string]string{}
	}
	d.told[name] = missing
	return true
}
