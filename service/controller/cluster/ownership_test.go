package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/deployment"
)

// kindOfOthers is a kind of owner whose objects share namespaces with those of a KVMConfig.
const kindOfOthers = "VirtualMachine.kvm.example.org"

// management returns the client of a management cluster with objects, and an engine that writes to it.
func management(objects ...client.Object) (client.Client, *apply.Engine) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	c := fake.NewClientBuilder().WithRESTMapper(mapper).WithObjects(objects...).
		WithIndex(&corev1.ConfigMap{}, apply.IndexOwner, apply.OwnerOf).
		WithIndex(&corev1.Namespace{}, apply.IndexOwner, apply.OwnerOf).Build()
	engine := apply.New(c, c, testingclock.NewFakePassiveClock(now))
	engine.Adopts = key.Adopts
	return c, engine
}

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// left returns the names of the ConfigMaps that exist.
func left(t *testing.T, c client.Client) []string {
	t.Helper()
	var list corev1.ConfigMapList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range list.Items {
		names = append(names, m.Namespace+"/"+m.Name)
	}
	return names
}

// TestOwnersOfTwoKindsOfOneName: owners of two kinds with the same name do not touch each other's objects: neither
// prunes, applies nor deletes those of the other.
func TestOwnersOfTwoKindsOfOneName(t *testing.T) {
	c, engine := management()
	places := apply.Places{Namespaces: []string{"ab1cd"}}
	kinds := []client.Object{&corev1.ConfigMap{}}
	owners := map[string]ownership.Owner{}
	for _, kind := range []string{key.KindKVMConfig, kindOfOthers} {
		owners[kind] = ownership.Owner{Kind: kind, Namespace: "default", Name: "ab1cd", UID: types.UID("uid of " + kind), Handler: "configmap"}
	}
	apply1 := func(kind, name string) error {
		return engine.Apply(t.Context(), apply.Set{Owner: owners[kind], Places: places, Objects: []client.Object{configMap("ab1cd", name)}, Kinds: kinds})
	}
	for range 2 { // the second time, both have something to prune
		for kind, name := range map[string]string{key.KindKVMConfig: "of-kvmconfig", kindOfOthers: "of-others"} {
			if err := apply1(kind, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff([]string{"ab1cd/of-kvmconfig", "ab1cd/of-others"}, left(t, c)); diff != "" {
		t.Errorf("after both have pruned (-want +got):\n%s", diff)
	}
	if p, ok := problem.As(apply1(key.KindKVMConfig, "of-others")); !ok || p.Reason != "OwnedByOther" {
		t.Errorf("applying the other's object: %v, want OwnedByOther", p)
	}
	if remaining, err := engine.Delete(t.Context(), owners[kindOfOthers], places, kinds); err != nil || len(remaining) > 0 {
		t.Errorf("deletion: %v, %v", remaining, err)
	}
	if diff := cmp.Diff([]string{"ab1cd/of-kvmconfig"}, left(t, c)); diff != "" {
		t.Errorf("after one was deleted (-want +got):\n%s", diff)
	}
}

// TestForgedOwnersElsewhere: an object outside a cluster's places is neither pruned, nor deleted, nor waited for,
// regardless of the form of its owner annotation and of its finalizers.
func TestForgedOwnersElsewhere(t *testing.T) {
	s := simple().snapshot(t, world{})
	owner := s.Owner("configmap")
	forged := func(namespace, name string, annotations map[string]string) client.Object {
		m := configMap(namespace, name)
		m.Annotations, m.Finalizers = annotations, []string{"example.org/held"}
		return m
	}
	mine := forged("ab1cd", "mine", owner.Annotations())
	mine.SetFinalizers(nil)
	c, engine := management(
		mine,
		forged("acme", "today", owner.Annotations()),
		forged("acme", "earlier", map[string]string{ownership.Annotation: "default/ab1cd/configmap"}),
		forged("default", "beside", owner.Annotations()),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme", Annotations: owner.Annotations(), Finalizers: []string{"example.org/held"}}},
	)
	kinds := []client.Object{&corev1.ConfigMap{}, &corev1.Namespace{}}
	if err := engine.Apply(t.Context(), apply.Set{Owner: owner, Places: s.Places(), Kinds: kinds}); err != nil {
		t.Fatal(err)
	}
	elsewhere := []string{"acme/earlier", "acme/today", "default/beside"}
	if diff := cmp.Diff(elsewhere, left(t, c)); diff != "" {
		t.Errorf("after pruning (-want +got):\n%s", diff)
	}
	remaining, err := engine.Delete(t.Context(), owner, s.Places(), kinds)
	if err != nil || len(remaining) > 0 {
		t.Errorf("deletion waits for %v (%v)", remaining, err)
	}
	var list corev1.ConfigMapList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Items {
		if m.DeletionTimestamp != nil {
			t.Errorf("%s/%s is being deleted", m.Namespace, m.Name)
		}
	}
}

// TestNothingInAForeignNamespaceIsTrusted: neither its machines, nor its annotations, nor its Services are trusted.
func TestNothingInAForeignNamespaceIsTrusted(t *testing.T) {
	s := simple()
	w := s.running(t)
	w.Namespace = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ab1cd", UID: "n", Annotations: map[string]string{
		key.AnnotationEtcdFounders: "m9aaa", key.AnnotationEtcdRestored: "x/1",
	}}}
	w.Services.Master = corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "192.0.2.1"}}
	got := s.snapshot(t, w)
	if !got.NamespaceTaken || got.OwnsNamespace || got.Hold != state.HoldForeign {
		t.Errorf("the namespace is %s; owned %t, taken %t", got.Hold, got.OwnsNamespace, got.NamespaceTaken)
	}
	for _, n := range got.Nodes {
		if n.Deployment != nil || len(n.Pods) > 0 {
			t.Errorf("node %s has a machine there", n.ID)
		}
	}
	if diff := cmp.Diff([]string{"m0aaa"}, got.Founders); diff != "" || got.Restore.Done != "" {
		t.Errorf("restored %q; founders (-want +got):\n%s", got.Restore.Done, diff)
	}
	if namespaces := got.Places().Namespaces; len(namespaces) != 1 {
		t.Errorf("objects are looked for in %v", namespaces)
	}
}

// TestMarksAreMigratedAndNothingRolls: the objects of a cluster of an earlier operator have an old form of the owner
// annotation. Only that annotation changes: no node is outdated, and no pod template differs.
func TestMarksAreMigratedAndNothingRolls(t *testing.T) {
	s := simple()
	w := s.running(t)
	for _, d := range w.Deployments {
		d.Annotations[ownership.Annotation] = "default/ab1cd/deployment"
	}
	w.Namespace = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ab1cd", UID: "n", Annotations: map[string]string{ownership.Annotation: "default/ab1cd/namespace"}}}
	s.config.UID = "1"
	s.config.Status.Conditions = []metav1.Condition{{Type: state.ConditionNamespace, Status: metav1.ConditionTrue, Reason: "Done"}}
	got := s.snapshot(t, w)
	if got.Hold != state.HoldFormer || !got.OwnsNamespace || cmp.Diff([]types.UID{""}, got.Places().Former) != "" {
		t.Errorf("the namespace is %s; it is taken over from %v", got.Hold, got.Places().Former)
	}
	for _, n := range got.Nodes {
		if n.Deployment == nil || n.Outdated() || !n.Ready {
			t.Errorf("node %s: it has a machine: %t; outdated %t, Ready %t", n.ID, n.Deployment != nil, n.Outdated(), n.Ready)
		}
	}
	desired, err := deployment.New().Build(got)
	if err != nil || len(desired.Objects) != len(w.Deployments) {
		t.Fatalf("%d Deployments are wanted (%v)", len(desired.Objects), err)
	}
	for _, object := range desired.Objects {
		d := object.(*appsv1.Deployment)
		if diff := cmp.Diff(w.Deployments[d.Name].Spec, d.Spec); diff != "" {
			t.Errorf("Deployment %s differs (-there +wanted):\n%s", d.Name, diff)
		}
	}
}
