package apply_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// said returns the problem that err is, as "<reason>: <message>".
func said(t *testing.T, err error) string {
	t.Helper()
	p, ok := problem.As(err)
	if !ok {
		t.Fatalf("err = %v, want a problem", err)
	}
	return p.Reason + ": " + p.Message
}

// TestObjectsOfOthersAreRefusedAndUntouched, whether the cache shows them or not.
func TestObjectsOfOthersAreRefusedAndUntouched(t *testing.T) {
	for name, test := range map[string]struct {
		labels, annotations map[string]string
		want                string
	}{
		"without owner, unseen by the cache": {
			nil, nil,
			"NotOwned: ConfigMap NS/a exists and is not managed by this operator, so it is left alone; delete it, or hand it over with the label giantswarm.io/cluster=NS",
		},
		"without owner, seen by the cache": {
			map[string]string{key.LabelManagedBy: ownership.Operator}, nil,
			"NotOwned: ConfigMap NS/a exists and is not managed by this operator, so it is left alone; delete it, or hand it over with the label giantswarm.io/cluster=NS",
		},
		"of another cluster of the original": {
			map[string]string{key.LabelManagedBy: ownership.Operator, key.LabelGSCluster: "other"}, nil,
			"NotOwned: ConfigMap NS/a exists and is not managed by this operator, so it is left alone; delete it, or hand it over with the label giantswarm.io/cluster=NS",
		},
		"owned by another KVMConfig": {
			map[string]string{key.LabelManagedBy: ownership.Operator, key.LabelGSCluster: "NS"}, map[string]string{ownership.Annotation: "default/other/test"},
			`OwnedByOther: ConfigMap NS/a belongs to "default/other/test" and is left alone; delete it or choose another cluster id`,
		},
		"owned by another handler": {
			map[string]string{key.LabelGSCluster: "NS"}, map[string]string{ownership.Annotation: "default/NS/other"},
			`OwnedByOther: ConfigMap NS/a belongs to "default/NS/other" and is left alone; delete it or choose another cluster id`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			theirs := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "a", Labels: b.fill(test.labels), Annotations: b.fill(test.annotations)},
				Data:       map[string]string{"their": "data"},
			}
			do(t, direct.Create(t.Context(), theirs))
			seen(t, theirs)
			ours := b.configMap("b", nil)
			err := b.try(apply.Set{Objects: []client.Object{b.configMap("a", map[string]string{"k": "v"}), ours}, Kinds: []client.Object{&corev1.ConfigMap{}}})
			equal(t, "problem", b.in(test.want), said(t, err))
			equal(t, "their object", theirs.ResourceVersion, now(t, theirs).ResourceVersion)
			now(t, ours) // one that is rejected does not block the others
		})
	}
}

// TestARefusalEndsWithItsCause: at once where the cache shows that, and otherwise after some time, without a request in
// each pass until then.
func TestARefusalEndsWithItsCause(t *testing.T) {
	managed := map[string]string{key.LabelManagedBy: ownership.Operator}
	gone := func(t *testing.T, theirs *corev1.ConfigMap) { do(t, direct.Delete(t.Context(), theirs)) }
	for name, test := range map[string]struct {
		labels map[string]string
		end    func(*testing.T, *corev1.ConfigMap)
		want   []string
	}{
		"it is deleted": {managed, gone, []string{"POST"}},
		"it is handed over": {managed, func(t *testing.T, theirs *corev1.ConfigMap) {
			foreign(t, theirs, func(c *corev1.ConfigMap) { c.Labels[key.LabelGSCluster] = c.Namespace })
		}, []string{"PATCH"}},
		"it stays, and is changed": {managed, func(t *testing.T, theirs *corev1.ConfigMap) {
			foreign(t, theirs, func(c *corev1.ConfigMap) { c.Data = nil })
		}, nil},
		"it is deleted, unseen by the cache": {nil, gone, nil},
		"it comes into the cache, and is theirs": {nil, func(t *testing.T, theirs *corev1.ConfigMap) {
			foreign(t, theirs, func(c *corev1.ConfigMap) { c.Labels = managed })
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "a", Labels: test.labels}, Data: map[string]string{"k": "theirs"}}
			do(t, direct.Create(t.Context(), theirs))
			seen(t, theirs)
			wanted := set(b.configMap("a", map[string]string{"k": "v"}))
			refusal := said(t, b.try(wanted))
			asked.take()
			equal(t, "problem of the next pass", refusal, said(t, b.try(wanted)))
			equal(t, "requests of the next pass", []string(nil), asked.take())
			test.end(t, theirs)
			seen(t, theirs)
			err := b.try(wanted)
			equal(t, "requests after that", test.want, verbs(asked.take()))
			equal(t, "still refused", test.want == nil, err != nil)
		})
	}
}

// in replaces NS by the namespace.
func (b *bench) in(text string) string { return b.fill(map[string]string{"": text})[""] }

func (b *bench) fill(texts map[string]string) map[string]string {
	filled := map[string]string{}
	for name, text := range texts {
		filled[name] = replaceAll(text, "NS", b.namespace)
	}
	return filled
}

// TestObjectsOfTheOriginalAreAdopted by any of its labels for the same cluster; fields that are not in the intent are
// kept.
func TestObjectsOfTheOriginalAreAdopted(t *testing.T) {
	for _, label := range []string{"giantswarm.io/cluster", "cluster", "cluster-id", "giantswarm.io/cluster-id"} {
		for _, managed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, managed-by %t", label, managed), func(t *testing.T) {
				b := newBench(t)
				labels := map[string]string{label: b.namespace, "their": "label"}
				if managed {
					labels[key.LabelManagedBy] = ownership.Operator
				}
				theirs := &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "a", Labels: labels, Annotations: map[string]string{"their": "annotation"}},
					Data:       map[string]string{"k": "old", "their": "data"},
				}
				do(t, direct.Create(t.Context(), theirs, client.FieldOwner("original")))
				seen(t, theirs)
				wanted := set(b.configMap("a", map[string]string{"k": "v"}))
				b.apply(wanted)
				adopted := now(t, theirs)
				equal(t, "data", map[string]string{"k": "v", "their": "data"}, adopted.Data)
				equal(t, "what else is theirs", []string{"label", "annotation"}, []string{adopted.Labels["their"], adopted.Annotations["their"]})
				equal(t, "owner and object", []string{b.owner().String(), string(theirs.UID)}, []string{adopted.Annotations[ownership.Annotation], string(adopted.UID)})
				seen(t, theirs)
				equal(t, "requests of the next pass", []string(nil), b.apply(wanted))
			})
		}
	}
}

// TestForeignFieldsStay when the intent changes.
func TestForeignFieldsStay(t *testing.T) {
	b := newBench(t)
	b.apply(set(b.configMap("a", map[string]string{"k": "1"})))
	foreign(t, b.configMap("a", nil), func(c *corev1.ConfigMap) {
		c.Data["their"], c.Annotations["their"], c.Labels["their"] = "data", "annotation", "label"
	})
	equal(t, "requests after a foreign addition", []string(nil), b.apply(set(b.configMap("a", map[string]string{"k": "1"}))))
	b.apply(set(b.configMap("a", map[string]string{"k": "2"})))
	got := now(t, b.configMap("a", nil))
	equal(t, "data", map[string]string{"k": "2", "their": "data"}, got.Data)
	equal(t, "what else is theirs", []string{"label", "annotation"}, []string{got.Labels["their"], got.Annotations["their"]})
}

// TestCreateOnlyObjectsAreNeverChanged: they hold what cannot be created a second time.
func TestCreateOnlyObjectsAreNeverChanged(t *testing.T) {
	b := newBench(t)
	keyOf := func(value string) apply.Set {
		return apply.Set{Objects: []client.Object{b.configMap("a", map[string]string{"key": value})}, CreateOnly: true}
	}
	equal(t, "requests to create", []string{"POST"}, b.apply(keyOf("first")))
	equal(t, "requests with another key", []string(nil), b.apply(keyOf("second")))
	b.restart()
	equal(t, "requests with another key after a restart", []string(nil), b.apply(keyOf("second")))
	equal(t, "the key", "first", now(t, b.configMap("a", nil)).Data["key"])
}

// TestReplacementOfWhatWasRead: an object that names a resource version replaces only that version; labels and
// annotations of others are kept, and what is no longer wanted is removed.
func TestReplacementOfWhatWasRead(t *testing.T) {
	b := newBench(t)
	made := func(version string, data map[string]string) apply.Set {
		object := b.configMap("a", data)
		object.ResourceVersion = version
		return apply.Set{Objects: []client.Object{object}, CreateOnly: true}
	}
	if err := b.try(made("1", nil)); !apply.IsOutdated(err) {
		t.Errorf("err = %v, want one that says outdated for what is not there", err)
	}
	b.apply(made("", map[string]string{"key": "first", "next": "second"}))
	foreign(t, b.configMap("a", nil), func(m *corev1.ConfigMap) { m.Labels["their"] = "label" })
	read := now(t, b.configMap("a", nil))
	seen(t, read)
	equal(t, "requests to replace it", []string{"PATCH"}, b.apply(made(read.ResourceVersion, map[string]string{"key": "second"})))
	got := now(t, b.configMap("a", nil))
	equal(t, "data", map[string]string{"key": "second"}, got.Data)
	equal(t, "what is theirs", "label", got.Labels["their"])
	if err := b.try(made(read.ResourceVersion, map[string]string{"key": "third"})); !apply.IsOutdated(err) {
		t.Errorf("err = %v, want one that says outdated for a version that is over", err)
	}
	equal(t, "data after that", map[string]string{"key": "second"}, now(t, b.configMap("a", nil)).Data)
}

// TestCreateOnlyObjectsUnseenByTheCache: decisions made without them are outdated, and nothing after them is written.
// Otherwise leaf certificates of a CA that is never stored would be written.
func TestCreateOnlyObjectsUnseenByTheCache(t *testing.T) {
	b := newBench(t)
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "ca", Labels: map[string]string{key.LabelGSCluster: b.namespace}}}
	do(t, direct.Create(t.Context(), theirs))
	err := b.try(apply.Set{Objects: []client.Object{b.configMap("ca", nil), b.configMap("leaf", nil)}, CreateOnly: true})
	if !apply.IsOutdated(err) {
		t.Errorf("err = %v, want one that says outdated", err)
	}
	if _, isProblem := problem.As(err); isProblem {
		t.Errorf("it is not retried: %v", err)
	}
	leaf := &corev1.ConfigMap{}
	if err := direct.Get(t.Context(), client.ObjectKey{Namespace: b.namespace, Name: "leaf"}, leaf); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("err = %v; what comes after was written", err)
	}
}

// TestErrorsAreJoined: the texts of two refusals are in one problem.
func TestErrorsAreJoined(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"a", "b"} {
		do(t, direct.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name}}))
	}
	err := b.try(set(b.configMap("a", nil), b.configMap("b", nil)))
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) || len(joined.Unwrap()) != 2 {
		t.Errorf("err = %v, want two", err)
	}
	if p, ok := problem.As(err); !ok || cmp.Equal(p.Message, "") {
		t.Errorf("it is no problem: %v", err)
	}
}
