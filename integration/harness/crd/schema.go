package crd

import (
	"os"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Read reads the definition in a file.
func Read(t *testing.T, file string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(content, &definition); err != nil {
		t.Fatal(err)
	}
	return &definition
}

// Field is one of a definition: its path from the root, lists marked [], whether it has no fields of its own, and the
// rules that are attached to it, or to each of its values if it is a map.
type Field struct {
	Path  string
	Leaf  bool
	Rules []Rule
}

// Rule is the path of the field that the errors of a CEL rule name, and their message.
type Rule struct{ Path, Message string }

// Fields are the fields of the definition in a file, ordered by path.
func Fields(t *testing.T, file string) []Field {
	t.Helper()
	all := collect("", Read(t, file).Spec.Versions[0].Schema.OpenAPIV3Schema)
	slices.SortFunc(all, func(a, b Field) int { return strings.Compare(a.Path, b.Path) })
	return all
}

// Leaves are the paths of the fields of spec and status that have no fields of their own, without the mark of a list.
func Leaves(t *testing.T, file string) []string {
	t.Helper()
	var paths []string
	for _, field := range Fields(t, file) {
		path := strings.TrimSuffix(field.Path, "[]")
		if field.Leaf && (strings.HasPrefix(path, "spec.") || strings.HasPrefix(path, "status.")) {
			paths = append(paths, path)
		}
	}
	return paths
}

func collect(path string, schema *apiextensionsv1.JSONSchemaProps) []Field {
	own := Field{Path: path, Leaf: len(schema.Properties) == 0 && schema.Items == nil}
	rules := slices.Clone(schema.XValidations)
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		rules = append(rules, schema.AdditionalProperties.Schema.XValidations...)
	}
	for _, r := range rules {
		own.Rules = append(own.Rules, Rule{Path: path + r.FieldPath, Message: r.Message})
	}
	all := []Field{own}
	for name, property := range schema.Properties {
		prefix := name
		if path != "" {
			prefix = path + "." + name
		}
		all = append(all, collect(prefix, &property)...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		all = append(all, collect(path+"[]", schema.Items.Schema)...)
	}
	return all
}
