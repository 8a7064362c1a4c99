package cluster

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/addon"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/pvc"
)

func kindsOf(objects []client.Object) []string {
	kinds := map[string]bool{}
	for _, object := range objects {
		kinds[reflect.TypeOf(object).String()] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}

// TestChainIsWhole: the chain is consistent, each handler has a condition, the cache indexes every kind that a handler
// creates, and rendering includes all handlers of the management cluster.
func TestChainIsWhole(t *testing.T) {
	links := (&Reconciler{engine: apply.New(nil, nil, nil), Workloads: NewWorkloads(nil, nil, nil), Vault: revoker{}}).chain()
	if err := links.Validate(); err != nil {
		t.Error(err)
	}
	var handlers []string
	for _, link := range links {
		handlers = append(handlers, link.Handler.Name())
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(conditionTypes)), slices.Sorted(slices.Values(handlers))); diff != "" {
		t.Errorf("other handlers have a condition than run (-conditions +run):\n%s", diff)
	}
	told := append(slices.Clone(areas), ConditionAvailable)
	for handler, area := range conditionTypes {
		if !slices.Contains(told, area) {
			t.Errorf("the condition %s of handler %s is told nowhere", area, handler)
		}
	}
	// Ready, and the conditions of the areas: the most that a Ready cluster has.
	if most := 12; len(told)+1 > most {
		t.Errorf("%d conditions, at most %d are allowed", len(told)+1, most)
	}
	kinds, rendered := []client.Object(nil), []string{
		"network", "nodeindexstatus", "release", "placement", "workload", "certificaterequest", "nodelabel", "etcdmember", "certificaterotation", "vault", "addonhealth",
	}
	for _, resource := range addon.All() {
		rendered = append(rendered, resource.Handler)
	}
	for _, resource := range append(Resources(nil, nil), pvc.Resource()) {
		kinds, rendered = append(kinds, resource.Kinds...), append(rendered, resource.Handler)
	}
	if diff := cmp.Diff(kindsOf(Kinds()), kindsOf(kinds)); diff != "" {
		t.Errorf("the cache indexes other kinds than the handlers make (-cache +handlers):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(handlers)), slices.Sorted(slices.Values(rendered))); diff != "" {
		t.Errorf("other handlers are rendered than run (-run +rendered):\n%s", diff)
	}
}

// TestHandlersMakeOnlyKindsThatTheyPrune: an object whose kind is not among its handler's kinds would never be deleted.
func TestHandlersMakeOnlyKindsThatTheyPrune(t *testing.T) {
	rendered := must(t, renderedFull)
	for _, resource := range renderable() {
		for _, object := range objects(t, rendered, resource.Handler) {
			if !slices.Contains(kindsOf(resource.Kinds), kindsOf([]client.Object{object})[0]) {
				t.Errorf("handler %s makes %T %s, which is none of its kinds", resource.Handler, object, object.GetName())
			}
		}
	}
}

// revoker is a fake that revokes nothing.
type revoker struct{}

func (revoker) Revoke([]pki.Request) error { return nil }
