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
)

func kindsOf(objects []client.Object) []string {
	kinds := map[string]bool{}
	for _, object := range objects {
		kinds[reflect.TypeOf(object).String()] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}

// TestChainIsWhole: the chain is consistent, each handler counts for a condition that is written, and rendering includes
// all handlers of the management cluster.
func TestChainIsWhole(t *testing.T) {
	links := (&Reconciler{engine: apply.New(nil, nil, nil), Workloads: NewWorkloads(nil, nil, nil), Vault: revoker{}}).chain()
	if err := links.Validate(); err != nil {
		t.Error(err)
	}
	told := append(slices.Clone(areas), ConditionAvailable)
	for _, link := range links {
		if !slices.Contains(told, link.Condition) {
			t.Errorf("handler %s counts for the condition %q, which is not written", link.Handler.Name(), link.Condition)
		}
	}
	// Ready, and the conditions of the areas: the most that a Ready cluster has.
	if most := 12; len(told)+1 > most {
		t.Errorf("%d conditions, at most %d are allowed", len(told)+1, most)
	}
	// Handlers that decide, and make no objects on the management cluster.
	rendered := []string{
		"network", "nodeindexstatus", "release", "placement", "workload", "certificaterequest", "nodelabel", "etcdmember", "certificaterotation", "certificaterenewal", "vault", "addonhealth",
	}
	for _, resource := range slices.Concat(addon.All(), Resources()) {
		rendered = append(rendered, resource.Handler)
	}
	var handlers []string
	for _, link := range links {
		handlers = append(handlers, link.Handler.Name())
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
