package intern_test

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/intern"
)

func object() *corev1.ConfigMap {
	// Clones have their own memory, as decoded strings do.
	c := strings.Clone
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: c("name"), Namespace: c("shared-namespace"),
		Labels: map[string]string{c("shared-label"): c("shared-value"), c("empty"): ""}, Annotations: map[string]string{c("note"): strings.Repeat("long", 100)},
	}}
}

// longest returns the longest key of labels, as it lies in memory.
func longest(labels map[string]string) (key string) {
	for name := range labels {
		if len(name) > len(key) {
			key = name
		}
	}
	return key
}

// TestObjectsShareTheirStringsAndStayTheSame compares where strings lie.
func TestObjectsShareTheirStringsAndStayTheSame(t *testing.T) {
	one, other := object(), object()
	intern.Metadata(one)
	intern.Metadata(other)
	if diff := cmp.Diff(object(), other); diff != "" {
		t.Errorf("the object has changed: %s", diff)
	}
	for what, pair := range map[string][2]string{
		"namespaces": {one.Namespace, other.Namespace},
		"values":     {one.Labels["shared-label"], other.Labels["shared-label"]},
		"names":      {longest(one.Labels), longest(other.Labels)},
	} {
		if unsafe.StringData(pair[0]) != unsafe.StringData(pair[1]) {
			t.Errorf("two objects do not share their %s", what)
		}
	}
	bare := &corev1.ConfigMap{}
	intern.Metadata(bare)
	if bare.Labels != nil || bare.Annotations != nil {
		t.Error("an object without labels gets some")
	}
}
