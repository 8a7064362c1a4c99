package v1alpha1_test

import (
	"os"
	"slices"
	"sort"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// A field of a CRD: its path from the root, lists marked [], and the rules that are attached to it, or to each of its values
// if it is a map.
type field struct {
	path  string
	leaf  bool
	rules []rule
}

// A rule and the field that its errors name.
type rule struct{ path, message string }

// fields are the fields of a CRD, ordered by path.
func fields(t *testing.T, crd string) []field {
	t.Helper()
	content, err := os.ReadFile(crds + "/" + crd + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(content, &definition); err != nil {
		t.Fatal(err)
	}
	all := collect("", definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
	sort.Slice(all, func(i, j int) bool { return all[i].path < all[j].path })
	return all
}

func collect(path string, schema *apiextensionsv1.JSONSchemaProps) []field {
	own := field{path: path, leaf: len(schema.Properties) == 0 && schema.Items == nil}
	rules := slices.Clone(schema.XValidations)
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		rules = append(rules, schema.AdditionalProperties.Schema.XValidations...)
	}
	for _, r := range rules {
		own.rules = append(own.rules, rule{path: path + r.FieldPath, message: r.Message})
	}
	all := []field{own}
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
