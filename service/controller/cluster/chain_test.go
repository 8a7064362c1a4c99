package cluster

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
	"github.com/kvm-operator/kvm-operator/resources/addon"
	"github.com/kvm-operator/kvm-operator/resources/pvc"
)

func kindsOf(objects []client.Object) []string {
	kinds := map[string]bool{}
	for _, object := range objects {
		kinds[reflect.TypeOf(object).String()] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}

// TestChainIsWhole: it does not contradict itself, each handler has a condition of its own, the cache indexes every kind
// that a handler makes, and rendering leaves no handler of the
// management cluster out.
func TestChainIsWhole(t *testing.T) {
	links := NewChain(apply.New(nil, nil, nil), NewWorkloads(nil, nil, nil), revoker{}, nil, nil)
	if err := links.Validate(); err != nil {
		t.Error(err)
	}
	var handlers, types []string
	for _, link := range links {
		handlers, types = append(handlers, link.Handler.Name()), append(types, conditionTypes[link.Handler.Name()])
	}
	slices.Sort(types)
	if diff := cmp.Diff(slices.Sorted(maps.Values(conditionTypes)), types); diff != "" {
		t.Errorf("conditions and handlers do not match (-conditions +handlers):\n%s", diff)
	}
	if len(slices.Compact(types)) != len(links) {
		t.Errorf("two handlers share a condition: %v", types)
	}
	kinds, rendered := []client.Object(nil), []string{
		"network", "nodeindexstatus", "release", "placement", "workload", "certificaterequest", "nodelabel", "nodereadiness", "node", "etcdmember",
		"terminateunhealthynodes", "certificaterotation", "vault", "addonhealth",
	}
	for _, resource := range addon.All() {
		rendered = append(rendered, resource.Handler)
	}
	for _, resource := range append(Resources(), pvc.Resource()) {
		kinds, rendered = append(kinds, resource.Kinds...), append(rendered, resource.Handler)
	}
	if diff := cmp.Diff(kindsOf(Kinds()), kindsOf(kinds)); diff != "" {
		t.Errorf("the cache indexes other kinds than the handlers make (-cache +handlers):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(handlers)), slices.Sorted(slices.Values(rendered))); diff != "" {
		t.Errorf("other handlers are rendered than run (-run +rendered):\n%s", diff)
	}
}

// TestHandlersMakeOnlyKindsThatTheyPrune: what a handler makes and does not name among its kinds would never go.
func TestHandlersMakeOnlyKindsThatTheyPrune(t *testing.T) {
	rendered := must(t, renderedFull)
	for _, resource := range append(Resources(), pvc.Resource()) {
		for _, object := range objects(t, rendered, resource.Handler) {
			if !slices.Contains(kindsOf(resource.Kinds), kindsOf([]client.Object{object})[0]) {
				t.Errorf("handler %s makes %T %s, which is none of its kinds", resource.Handler, object, object.GetName())
			}
		}
	}
}

// revoker revokes nothing.
type revoker struct{}

func (revoker) Revoke([]pki.Request) error { return nil }
