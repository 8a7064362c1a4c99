package fuzz_test

import (
	"fmt"
	"math"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// mutation is a KVMConfig spec with one field changed.
type mutation struct {
	name string
	spec map[string]any
}

// mutations changes every field of the schema that the spec has, one at a time, in every way that fits its type.
func mutations(schema apiextensionsv1.JSONSchemaProps, spec map[string]any) []mutation {
	var all []mutation
	walk(schema, "spec", nil, func(path []any, name string, s apiextensionsv1.JSONSchemaProps) {
		if _, ok := lookup(spec, path); !ok {
			return
		}
		for what, value := range values(s) {
			changed := runtime.DeepCopyJSON(spec)
			if replace(changed, path, value) {
				all = append(all, mutation{name: name + " " + what, spec: changed})
			}
		}
	})
	slices.SortFunc(all, func(a, b mutation) int { return strings.Compare(a.name, b.name) })
	return all
}

// absent stands for a field that is left out.
type absent struct{}

// values returns the values that a field is changed to, by their name in the test's name.
func values(s apiextensionsv1.JSONSchemaProps) map[string]any {
	v := map[string]any{"absent": absent{}}
	switch {
	case s.XIntOrString:
		v["zero"], v["negative"], v["maximal"], v["unicode"] = int64(0), "-1Gi", "9Ei", "☃"
	case s.Type == "string":
		v["zero"], v["maximal"], v["unicode"], v["wrong reference"] = "", strings.Repeat("a", longest(s)), "ünï☃", "zzzzz"
	case s.Type == "integer":
		v["zero"], v["negative"], v["maximal"] = int64(0), int64(-1), int64(math.MaxInt32)
	case s.Type == "number":
		v["zero"], v["negative"], v["maximal"] = float64(0), float64(-1.5), float64(math.MaxFloat32)
	case s.Type == "boolean":
		v["zero"], v["maximal"] = false, true
	case s.Type == "array":
		v["zero"] = []any{}
	case s.Type == "object":
		v["zero"] = map[string]any{}
	}
	return v
}

func longest(s apiextensionsv1.JSONSchemaProps) int {
	if s.MaxLength != nil {
		return int(*s.MaxLength)
	}
	return 253
}

// walk visits every field of the schema. In lists it visits the first element.
func walk(s apiextensionsv1.JSONSchemaProps, name string, path []any, visit func([]any, string, apiextensionsv1.JSONSchemaProps)) {
	if len(path) > 0 {
		visit(path, name, s)
	}
	for field, property := range s.Properties {
		walk(property, name+"."+field, append(slices.Clone(path), field), visit)
	}
	if s.Items != nil && s.Items.Schema != nil {
		walk(*s.Items.Schema, name+"[0]", append(slices.Clone(path), 0), visit)
	}
}

func lookup(value any, path []any) (any, bool) {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			m, ok := value.(map[string]any)
			if value = m[s]; !ok || value == nil {
				return nil, false
			}
		case int:
			l, ok := value.([]any)
			if !ok || s >= len(l) {
				return nil, false
			}
			value = l[s]
		}
	}
	return value, true
}

// replace sets the field at the path, or removes it, and reports whether it could.
func replace(root any, path []any, value any) bool {
	parent, _ := lookup(root, path[:len(path)-1])
	_, remove := value.(absent)
	switch last := path[len(path)-1].(type) {
	case string:
		m := parent.(map[string]any)
		if remove {
			delete(m, last)
		} else {
			m[last] = value
		}
		return true
	case int:
		if remove {
			return false // a list without its first element is another list, not an absent field
		}
		parent.([]any)[last] = value
		return true
	}
	panic(fmt.Sprintf("path %v", path))
}
