package apply_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

func replaceAll(text, old, with string) string { return strings.ReplaceAll(text, old, with) }

// exists reports whether the API server has the object.
func exists(t *testing.T, object client.Object) bool {
	t.Helper()
	err := direct.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// TestWhatIsDroppedFromTheIntentDisappears, also from an object that was posted and never changed since.
func TestWhatIsDroppedFromTheIntentDisappears(t *testing.T) {
	for name, test := range map[string]struct{ changedBefore, restarted bool }{
		"posted only":                   {false, false},
		"posted only, then a restart":   {false, true},
		"changed before":                {true, false},
		"changed before, and a restart": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			full := b.configMap("a", map[string]string{"k": "v", "dropped": "x"})
			full.Labels["dropped"], full.Annotations = "x", map[string]string{"dropped": "x"}
			b.apply(set(full))
			if test.changedBefore {
				full.Data["dropped"] = "y"
				b.apply(set(full))
			}
			if test.restarted {
				b.restart()
			}
			less := set(b.configMap("a", map[string]string{"k": "v"}))
			b.apply(less)
			got := now(t, b.configMap("a", nil))
			equal(t, "data", map[string]string{"k": "v"}, got.Data)
			equal(t, "label and annotation", []string{"", ""}, []string{got.Labels["dropped"], got.Annotations["dropped"]})
			equal(t, "requests of the next pass", []string(nil), b.apply(less))
		})
	}
}

// TestDriftIsMended: changes of other clients to our fields are reverted.
func TestDriftIsMended(t *testing.T) {
	for name, drift := range map[string]func(*corev1.ConfigMap){
		"a value changed":      func(c *corev1.ConfigMap) { c.Data["k"] = "theirs" },
		"a value removed":      func(c *corev1.ConfigMap) { delete(c.Data, "k") },
		"all data removed":     func(c *corev1.ConfigMap) { c.Data = nil },
		"a label changed":      func(c *corev1.ConfigMap) { c.Labels[key.LabelGSCluster] = "theirs" },
		"the hash was removed": func(c *corev1.ConfigMap) { delete(c.Annotations, ownership.AnnotationApplied) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			wanted := set(b.configMap("a", map[string]string{"k": "v"}))
			b.apply(wanted)
			foreign(t, b.configMap("a", nil), drift)
			b.apply(wanted)
			got := now(t, b.configMap("a", nil))
			equal(t, "data and label", []string{"v", b.namespace}, []string{got.Data["k"], got.Labels[key.LabelGSCluster]})
			equal(t, "requests of the next pass", []string(nil), b.apply(wanted))
		})
	}
}

// TestWhatWasDeletedByHandComesBack.
func TestWhatWasDeletedByHandComesBack(t *testing.T) {
	b := newBench(t)
	wanted := b.configMap("a", map[string]string{"k": "v"})
	b.apply(set(wanted))
	do(t, direct.Delete(t.Context(), wanted.DeepCopy()))
	seen(t, wanted)
	equal(t, "requests", []string{"POST"}, b.apply(set(wanted)))
	equal(t, "data", map[string]string{"k": "v"}, now(t, wanted).Data)
}

// TestPruningTakesOurOwnAndNothingElse.
func TestPruningTakesOurOwnAndNothingElse(t *testing.T) {
	b := newBench(t)
	kinds := []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}}
	stays, kept, goes := b.configMap("stays", nil), b.configMap("kept", nil), b.configMap("goes", nil)
	secret := &corev1.Secret{ObjectMeta: b.meta("goes")}
	b.apply(apply.Set{Objects: []client.Object{stays, kept, goes, secret}, Kinds: kinds})
	others := b.configMap("others", nil)
	do(t, b.try(apply.Set{Owner: b.ownerNamed("other"), Objects: []client.Object{others}}))
	ownerless := b.configMap("ownerless", nil)
	do(t, direct.Create(t.Context(), ownerless.DeepCopy()))
	for _, object := range []client.Object{stays, kept, goes, secret, others, ownerless} {
		seen(t, object)
	}
	equal(t, "requests without kinds", []string(nil), b.apply(set(stays)))
	equal(t, "requests", []string{"DELETE", "DELETE"}, b.apply(apply.Set{Objects: []client.Object{stays}, Keep: []client.Object{b.configMap("kept", map[string]string{"any": "thing"})}, Kinds: kinds}))
	got := []bool{exists(t, stays), exists(t, kept), exists(t, others), exists(t, ownerless), exists(t, goes), exists(t, secret)}
	equal(t, "who exists", []bool{true, true, true, true, false, false}, got)
}

// TestNothingIsPrunedAfterAFailure: the object that cannot be created may be the replacement of the pruned one.
func TestNothingIsPrunedAfterAFailure(t *testing.T) {
	b := newBench(t)
	old := b.configMap("old", nil)
	b.apply(set(old))
	seen(t, old)
	do(t, direct.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "new"}}))
	err := b.try(apply.Set{Objects: []client.Object{b.configMap("new", nil)}, Kinds: []client.Object{&corev1.ConfigMap{}}})
	if err == nil || !exists(t, old) {
		t.Errorf("err = %v; the old object exists: %t", err, exists(t, old))
	}
}

// TestDeletingWaitsUntilGone: Delete returns what still exists, and deletes nothing of other owners.
func TestDeletingWaitsUntilGone(t *testing.T) {
	b := newBench(t)
	a, d := b.configMap("a", nil), b.deployment("d", "image:1")
	b.apply(set(a, d))
	foreign(t, d, func(d *appsv1.Deployment) { d.Finalizers = []string{"a.org/1", "a.org/2", "a.org/3", "a.org/4"} })
	others := b.configMap("others", nil)
	do(t, b.try(apply.Set{Owner: b.ownerNamed("other"), Objects: []client.Object{others}}))
	for _, object := range []client.Object{a, d, others} {
		seen(t, object)
	}
	kinds := []client.Object{&corev1.ConfigMap{}, &appsv1.Deployment{}}
	remaining, err := b.engine.Delete(t.Context(), b.owner(), b.places(), kinds)
	do(t, err)
	// No garbage collector runs here, so the Deployment remains, like one whose pods are still terminating.
	equal(t, "what remains, and why", []string{"Deployment " + b.namespace + "/d (finalizers a.org/1, a.org/2, a.org/3 and 1 more)"}, remaining)
	equal(t, "who holds it", true, slices.Contains(now(t, d).Finalizers, "foregroundDeletion"))
	want := b.in("Terminating: Deployment NS/d is being deleted; the operator creates it again when it is gone")
	equal(t, "making it meanwhile", want, said(t, b.try(set(d))))
	foreign(t, d, func(d *appsv1.Deployment) { d.Finalizers = nil })
	remaining, err = b.engine.Delete(t.Context(), b.owner(), b.places(), kinds)
	do(t, err)
	equal(t, "what remains in the end", []string(nil), remaining)
	equal(t, "who exists", []bool{false, false, true}, []bool{exists(t, a), exists(t, d), exists(t, others)})
}

// snapshot is what the handlers of the tests decide on.
type snapshot struct {
	owner  ownership.Owner
	places apply.Places
}

func (s snapshot) Owner(string) ownership.Owner { return s.owner }

func (s snapshot) Places() apply.Places { return s.places }

// TestHandlersFromPureFunctions: outcome and effects of an apply.Resource in a chain.
func TestHandlersFromPureFunctions(t *testing.T) {
	b := newBench(t)
	var desired apply.Desired
	var buildErr error
	resource := apply.Resource[snapshot]{
		Handler: "test", Kinds: []client.Object{&corev1.ConfigMap{}}, Build: func(snapshot) (apply.Desired, error) { return desired, buildErr },
	}
	first, second := b.configMap("first", nil), b.configMap("second", nil)
	step := func(r apply.Resource[snapshot], wanted apply.Desired, err error) (chain.Outcome, error) {
		desired, buildErr = wanted, err
		outcome, got := r.Handle(b.engine).EnsureCreated(t.Context(), snapshot{b.owner(), b.places()})
		for _, object := range []client.Object{first, second} {
			seen(t, object)
		}
		return outcome, got
	}
	waiting := chain.Wait("NodesNotReady", "w0aaa", 0)
	outcome, err := step(resource, apply.Desired{Objects: []client.Object{first, second}, Wait: &waiting}, nil)
	do(t, err)
	equal(t, "outcome of waiting", waiting, outcome)
	failed := apierrors.NewBadRequest("broken")
	if _, err = step(resource, apply.Desired{Objects: []client.Object{first}}, failed); !errors.Is(err, failed) {
		t.Errorf("err = %v, want that of Build", err)
	}
	equal(t, "after an error of Build nothing is pruned", true, exists(t, second))
	data := resource
	data.KeepUnwanted = true
	outcome, err = step(data, apply.Desired{Objects: []client.Object{first}}, nil)
	do(t, err)
	equal(t, "outcome and whether data is kept", []any{chain.Done(), true}, []any{outcome, exists(t, second)})
	if _, err = step(resource, apply.Desired{Objects: []client.Object{first}, Problem: failed}, nil); !errors.Is(err, failed) {
		t.Errorf("err = %v, want the problem", err)
	}
	equal(t, "after a problem the unwanted is kept", false, exists(t, second))
	_, err = step(resource, apply.Desired{Objects: []client.Object{first, second}}, nil)
	do(t, err)
	_, err = step(resource, apply.Desired{Objects: []client.Object{first}}, nil)
	do(t, err)
	equal(t, "whether the unwanted is kept", false, exists(t, second))
	outcome, err = resource.Handle(b.engine).EnsureDeleted(t.Context(), snapshot{b.owner(), b.places()})
	do(t, err)
	equal(t, "outcome of deletion and whether anything is left", []any{chain.Done(), false}, []any{outcome, exists(t, first)})
}
