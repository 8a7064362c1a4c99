package crd

import (
	"fmt"
	"os"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Load reads testdata/<name>.yaml and merges YAML documents into it, in order.
func Load(t *testing.T, name string, changes ...string) *unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	object := Parse(t, string(content))
	for _, change := range changes {
		Merge(object, Parse(t, change))
	}
	return &unstructured.Unstructured{Object: object}
}

// Parse reads YAML as the API server does, whole numbers staying whole.
func Parse(t *testing.T, document string) map[string]any {
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

// Merge merges maps key by key; a list replaces a list. Other than in a JSON merge patch (RFC 7386) an explicit null
// stays, for manifests may carry one; the text <remove> takes a key out.
func Merge(into, from map[string]any) {
	for key, value := range from {
		target, isMap := into[key].(map[string]any)
		source, alsoMap := value.(map[string]any)
		switch {
		case value == remove:
			delete(into, key)
		case isMap && alsoMap:
			Merge(target, source)
		default:
			into[key] = value
		}
	}
}

// Lost lists what want has and got has not, or has otherwise, each by its path, which begins with the given one.
func Lost(path string, want, got any) []string {
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		var all []string
		for key, value := range want {
			if _, ok := got[key]; !ok {
				all = append(all, path+"."+key)
				continue
			}
			all = append(all, Lost(path+"."+key, value, got[key])...)
		}
		return all
	case []any:
		got, _ := got.([]any)
		if len(got) != len(want) {
			return []string{fmt.Sprintf("%s: %d of %d entries", path, len(got), len(want))}
		}
		var all []string
		for i := range want {
			all = append(all, Lost(fmt.Sprintf("%s[%d]", path, i), want[i], got[i])...)
		}
		return all
	}
	if !reflect.DeepEqual(want, got) {
		return []string{fmt.Sprintf("%s: %v became %v", path, want, got)}
	}
	return nil
}
