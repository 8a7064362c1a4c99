package service

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/service/controller/cluster"
	"github.com/kvm-operator/kvm-operator/service/controller/drainer"
	"github.com/kvm-operator/kvm-operator/service/controller/virtualmachine"
)

// rulesFile is the part of the chart that follows from the chains.
const rulesFile = "../helm/kvm-operator/templates/_rules.tpl"

// right is what the engine needs for the objects of a resource.
type right struct {
	// changes is whether a handler changes objects that exist.
	changes  bool
	handlers []string
}

// rights are those of a controller, by resource.
type rights map[schema.GroupResource]right

// TestRulesFollowFromTheChains compares the rules of the operator's role with the kinds of the handlers. UPDATE=1
// rewrites them. That each right is used, and none is missing, is tested in integration/suites/chart.
func TestRulesFollowFromTheChains(t *testing.T) {
	clusters, machines := rights{}, rights{}
	grant(t, clusters, append(cluster.Resources(), drainer.Resources()...))
	grant(t, machines, virtualmachine.Resources())
	for resource, r := range clusters {
		if machines[resource].changes && !r.changes {
			t.Fatalf("%s: clusters do not change objects that machines change", resource)
		}
		delete(machines, resource) // the role has it already
	}
	got := "{{- /* Written by make golden from the kinds of the handlers. Do not edit. */}}\n" +
		clusters.define("kvm-operator.rulesOfClusters") + machines.define("kvm-operator.rulesOfVirtualMachines")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(rulesFile, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs from what the handlers need (make golden rewrites it) (-file +handlers):\n%s", rulesFile, diff)
	}
}

// grant adds what the engine needs for the objects of handlers.
func grant[T apply.Owned](t *testing.T, to rights, handlers []apply.Resource[T]) {
	t.Helper()
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	mapper, err := mapperOf(apply.Kinds(handlers))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range handlers {
		for _, kind := range h.Kinds {
			resource := resourceOf(t, scheme, mapper, kind)
			r := to[resource]
			r.changes = r.changes || !h.CreateOnly
			r.handlers = append(r.handlers, h.Handler)
			to[resource] = r
		}
	}
}

func resourceOf(t *testing.T, scheme *runtime.Scheme, mapper meta.RESTMapper, kind runtime.Object) schema.GroupResource {
	t.Helper()
	gvks, _, err := scheme.ObjectKinds(kind)
	if err != nil {
		t.Fatal(err)
	}
	mapping, err := mapper.RESTMapping(gvks[0].GroupKind(), gvks[0].Version)
	if err != nil {
		t.Fatal(err)
	}
	return mapping.Resource.GroupResource()
}

// define returns a named template with the rules, those of a group and with the same verbs together. An object is read
// ("get") if the cache may lack it.
func (r rights) define(name string) string {
	lines := map[string][]string{}
	for resource, right := range r {
		verbs := "get, list, watch, create, delete"
		if right.changes {
			verbs = "get, list, watch, create, patch, delete"
		}
		rule := fmt.Sprintf("- apiGroups: [%s]\n  verbs: [%s]\n  resources:\n", groupName(resource.Group), verbs)
		slices.Sort(right.handlers)
		lines[rule] = append(lines[rule], fmt.Sprintf("    - %s # %s\n", resource.Resource, strings.Join(slices.Compact(right.handlers), ", ")))
	}
	var rules []string
	for rule, resources := range lines {
		slices.Sort(resources)
		rules = append(rules, rule+strings.Join(resources, ""))
	}
	slices.Sort(rules)
	return fmt.Sprintf("{{- define %q -}}\n%s{{- end }}\n", name, strings.Join(rules, ""))
}

func groupName(group string) string {
	if group == "" {
		return `""`
	}
	return group
}
