package service

import (
	"reflect"
	"slices"
	"testing"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/service/controller/cluster"
	"github.com/kvm-operator/kvm-operator/service/controller/smolvm"
	"github.com/kvm-operator/kvm-operator/service/controller/virtualmachine"
)

// TestScopesOfKinds: the operator asks no API server which kinds have a namespace; client-go knows it of those of
// Kubernetes.
func TestScopesOfKinds(t *testing.T) {
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	known, compared := namespaced(), 0
	for _, kind := range slices.Concat(usedKinds(), cluster.WorkloadKinds(), virtualmachine.AllKinds(), smolvm.AllKinds()) {
		inNamespace, ok := known[reflect.TypeOf(kind)]
		if !ok {
			continue // one of the operator's kinds
		}
		compared++
		gvks, _, err := scheme.ObjectKinds(kind)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(clusterScoped, gvks[0]) == inNamespace {
			t.Errorf("%s has a namespace: %t; clusterScoped in service/cache.go says otherwise", gvks[0], inNamespace)
		}
	}
	if compared < 20 {
		t.Errorf("only %d kinds were compared", compared)
	}
}

// namespaced returns the types of the objects of Kubernetes, and whether they have a namespace: its client then takes
// one.
func namespaced() map[reflect.Type]bool {
	const object = 1 // Create takes a context, the object and options
	types := map[reflect.Type]bool{}
	for group := range reflect.TypeFor[kubernetes.Interface]().Methods() {
		if group.Type.NumIn() > 0 || group.Type.Out(0).Kind() != reflect.Interface {
			continue
		}
		for resource := range group.Type.Out(0).Methods() {
			if resource.Type.NumOut() != 1 || resource.Type.Out(0).Kind() != reflect.Interface {
				continue
			}
			create, ok := resource.Type.Out(0).MethodByName("Create")
			if ok && create.Type.NumIn() > object && create.Type.In(object).Implements(reflect.TypeFor[client.Object]()) {
				types[create.Type.In(object)] = resource.Type.NumIn() == 1
			}
		}
	}
	return types
}
