package v1alpha1_test

import (
	"context"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// load reads testdata/<name>.yaml and merges YAML documents into it, in order.
func load(t *testing.T, name string, changes ...string) *unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	object := parse(t, string(content))
	for _, change := range changes {
		merge(object, parse(t, change))
	}
	return &unstructured.Unstructured{Object: object}
}

// parse reads YAML as the API server does, whole numbers staying whole.
func parse(t *testing.T, document string) map[string]any {
	t.Helper()
	content, err := yaml.YAMLToJSONStrict([]byte(document))
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	var parsed map[string]any
	if err := utiljson.Unmarshal(content, &parsed); err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	return parsed
}

const remove = "<remove>"

// merge merges maps key by key; a list replaces a list. Other than in a JSON merge patch (RFC 7386) an explicit null
// stays, for manifests may carry one; the text in remove takes a key out.
func merge(into, from map[string]any) {
	for key, value := range from {
		target, isMap := into[key].(map[string]any)
		source, alsoMap := value.(map[string]any)
		switch {
		case value == remove:
			delete(into, key)
		case isMap && alsoMap:
			merge(target, source)
		default:
			into[key] = value
		}
	}
}

// create creates the object and deletes it when the test is over.
func create(t *testing.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	created := object.DeepCopy()
	if err := server.Create(context.Background(), created); err != nil {
		t.Fatalf("the API server refuses the object: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Delete(context.Background(), created.DeepCopy()); err != nil {
			t.Error(err)
		}
	})
	return created
}
