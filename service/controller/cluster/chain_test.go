package cluster

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

func kindsOf(objects []client.Object) []string {
	kinds := map[string]bool{}
	for _, object := range objects {
		kinds[reflect.TypeOf(object).String()] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}

// wholeChain returns the chain with all handlers that it may have.
func wholeChain() chain.Chain[*state.Cluster] {
	return (&Reconciler{engine: apply.New(nil, nil, nil), Workloads: NewWorkloads(nil, nil, nil), Vault: revoker{}}).chain()
}

// TestChainIsWhole: the chain is consistent, each handler counts for a condition that is written, and no handler
// on the management cluster hides from rendering what it makes.
func TestChainIsWhole(t *testing.T) {
	links := wholeChain()
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
	for _, link := range machines(apply.New(nil, nil, nil), nil, nil) {
		if _, declares := link.Handler.(apply.Declares[*state.Cluster]); !declares && wrapsHandler(link.Handler) {
			t.Errorf("handler %s wraps one and does not declare its resource, whose objects are not rendered then", link.Handler.Name())
		}
	}
}

// wrapsHandler returns whether a field of a handler is a handler, too.
func wrapsHandler(h chain.Handler[*state.Cluster]) bool {
	fields := reflect.VisibleFields(reflect.Indirect(reflect.ValueOf(h)).Type())
	return slices.ContainsFunc(fields, func(f reflect.StructField) bool {
		return f.Type.Implements(reflect.TypeFor[chain.Handler[*state.Cluster]]())
	})
}

// TestEveryHandlerIsDocumented: the table of areas in docs/kvmconfig.md has each handler, in the row of its condition.
func TestEveryHandlerIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/kvmconfig.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range wholeChain() {
		if link.Condition == ConditionAvailable {
			continue // it has no steps: it is about the API of the workload cluster alone
		}
		row := regexp.MustCompile("(?m)^\\| `" + link.Condition + "` \\| [^|]*`" + link.Handler.Name() + "`")
		if !row.Match(page) {
			t.Errorf("docs/kvmconfig.md: the row of %s does not have the step %s", link.Condition, link.Handler.Name())
		}
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
