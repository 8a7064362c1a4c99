package service

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/giantswarm/microerror"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	providerv1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	smolvmv1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	vmoperatorv1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/schema"
)

// reasonDefinitionOutdated is the reason of the event of a CustomResourceDefinition that the operator cannot work with.
const reasonDefinitionOutdated = "DefinitionOutdated"

// annotationMissing is an annotation that exists only in memory. It replaces the schema of a CustomResourceDefinition
// and lists the fields that the definition lacks.
const annotationMissing = "kvm-operator.giantswarm.io/missing"

var outdatedDefinitions = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kvm_operator_outdated_definition",
	Help: "1 for each CustomResourceDefinition that lacks a field which the operator needs; it reconciles nothing until that is applied.",
}, []string{"name"})

func init() { metrics.Registry.MustRegister(outdatedDefinitions) }

// definitions are the CustomResourceDefinitions of the operator's own kinds. An API server drops fields that a
// definition does not have without an error, so an operator that continued with an outdated definition would work with
// an incomplete status.
type definitions struct {
	events events.EventRecorder
	// caches are by the definition's name; each cache has only that definition.
	caches map[string]client.Reader

	mu sync.Mutex
	// told has the last reported lack of each definition, by name.
	told map[string]string
}

// ownKind is a kind of the operator: its version and its Go type.
type ownKind struct {
	version string
	kind    reflect.Type
}

// ownKinds are the operator's kinds, by the names of their definitions.
var ownKinds = map[string]ownKind{
	definitionsOfClusters[0]:  {"v1alpha1", reflect.TypeFor[providerv1alpha1.KVMConfig]()},
	definitionsOfClusters[1]:  {"v1alpha1", reflect.TypeFor[releasev1alpha1.Release]()},
	definitionVirtualMachines: {"v1", reflect.TypeFor[vmoperatorv1.VirtualMachine]()},
	definitionsOfSmolVMs[0]:   {"v1alpha1", reflect.TypeFor[smolvmv1alpha1.SmolVM]()},
	definitionsOfSmolVMs[1]:   {"v1alpha1", reflect.TypeFor[smolvmv1alpha1.SmolVMNode]()},
}

// definitionsOf returns the names of the definitions of the kinds that an operator runs for.
func definitionsOf(c Config) []string {
	var names []string
	if !c.NoClusters {
		names = append(names, definitionsOfClusters...)
	}
	if c.VirtualMachines != nil {
		names = append(names, definitionVirtualMachines)
	}
	if c.SmolVMs != nil {
		names = append(names, definitionsOfSmolVMs...)
	}
	return names
}

// definitionsOfClusters are the names of the definitions that the controllers of clusters need.
var definitionsOfClusters = []string{"kvmconfigs." + providerv1alpha1.GroupVersion.Group, "releases." + releasev1alpha1.GroupVersion.Group}

// definitionVirtualMachines is the name of the definition of VirtualMachines. The controllers of clusters do not need it.
const definitionVirtualMachines = "vms.vmoperator.jdrupes.org"

// outdated returns what is wrong with the definitions that the controllers of clusters need, and how to fix it. It is
// empty while they have what the operator needs.
func (d *definitions) outdated(ctx context.Context) string {
	return d.outdatedOf(ctx, slices.DeleteFunc(slices.Sorted(maps.Keys(d.caches)), func(name string) bool { return !slices.Contains(definitionsOfClusters, name) })...)
}

// exists returns whether there is a definition, as far as its cache is filled.
func (d *definitions) exists(ctx context.Context, name string) bool {
	cached, ok := d.caches[name]
	return ok && cached.Get(ctx, client.ObjectKey{Name: name}, &apiextensionsv1.CustomResourceDefinition{}) == nil
}

// outdatedOf does the same for the named definitions. It reads the caches instead of told, so that what they have before
// the first reconcile counts.
func (d *definitions) outdatedOf(ctx context.Context, names ...string) string {
	var parts []string
	for _, name := range names {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := d.caches[name].Get(ctx, client.ObjectKey{Name: name}, definition); err != nil {
			continue // the caches are not filled, or there is no definition and therefore no object of the kind
		}
		if missing := definition.Annotations[annotationMissing]; missing != "" {
			parts = append(parts, sentence(name, missing))
		}
	}
	return strings.Join(parts, "; ")
}

func sentence(name, missing string) string {
	return fmt.Sprintf("CustomResourceDefinition %s lacks %s and is that of giantswarm/kvm-operator or of another version of this operator: nothing is reconciled until "+
		"the definitions of this version are applied: helm show crds <chart> | kubectl apply --server-side --force-conflicts -f -", name, missing)
}

// addTo makes the manager watch the named definitions. The manager starts no controller before these caches are filled.
func (d *definitions) addTo(ctx context.Context, m manager.Manager, notice toolscache.WatchErrorHandlerWithContext, names ...string) error {
	mapper, err := mapperOf([]client.Object{&apiextensionsv1.CustomResourceDefinition{}})
	if err != nil {
		return err
	}
	d.caches = map[string]client.Reader{}
	for _, name := range names {
		c, err := cache.New(m.GetConfig(), cache.Options{
			HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: mapper, DefaultTransform: judge, DefaultWatchErrorHandler: notice,
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
		if err := m.Add(aCache{c}); err != nil {
			return microerror.Mask(err)
		}
	}
	return nil
}

// aCache is a cache that the manager fills before it starts the controllers.
type aCache struct{ cache.Cache }

// GetCache makes the manager treat it as a cache.
func (c aCache) GetCache() cache.Cache { return c.Cache }

// judge replaces a definition by what it lacks.
func judge(object any) (any, error) {
	definition, ok := object.(*apiextensionsv1.CustomResourceDefinition)
	if !ok || len(definition.Spec.Versions) == 0 {
		return object, nil // a tombstone, or trimmed already: client-go passes some objects twice
	}
	trimmed := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name: definition.Name, UID: definition.UID, ResourceVersion: definition.ResourceVersion,
	}}
	if own, ok := ownKinds[definition.Name]; ok {
		trimmed.Annotations = map[string]string{annotationMissing: schema.Missing(definition, own.version, own.kind)}
	}
	return trimmed, nil
}

// note records what a definition lacks and reports it once.
func (d *definitions) note(ctx context.Context, name string, object any) {
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
		outdatedDefinitions.DeleteLabelValues(name)
		logger.Info("the CustomResourceDefinition has what the operator needs", "name", name)
		return
	}
	outdatedDefinitions.WithLabelValues(name).Set(1)
	logger.Error(nil, sentence(name, missing))
	if d.events != nil {
		d.events.Eventf(definition, nil, corev1.EventTypeWarning, reasonDefinitionOutdated, "Reconcile", "%s", sentence(name, missing))
	}
}

// change records what a definition lacks and returns whether that differs from before.
func (d *definitions) change(name, missing string) bool {
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
