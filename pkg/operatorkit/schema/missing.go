package schema

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Missing names the first thing that a CustomResourceDefinition lacks for a Go type, which is a struct with the fields
// spec and possibly status: a version, the status subresource or a field, as in "status.conditions[].type". An API
// server drops unknown fields without an error. The result is empty if nothing is missing.
func Missing(definition *apiextensionsv1.CustomResourceDefinition, version string, object reflect.Type) string {
	i := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version && v.Served })
	if i < 0 {
		return "version " + version
	}
	v := definition.Spec.Versions[i]
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return "a schema of version " + version
	}
	for _, name := range []string{"Spec", "Status"} {
		field, there := object.FieldByName(name)
		if !there {
			continue
		}
		if name == "Status" && (v.Subresources == nil || v.Subresources.Status == nil) {
			return "the subresource status"
		}
		path, _ := nameOf(field)
		property, described := v.Schema.OpenAPIV3Schema.Properties[path]
		if !described {
			return path
		}
		if missing := missing(field.Type, &property, path); missing != "" {
			return missing
		}
	}
	return ""
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func missing(t reflect.Type, s *apiextensionsv1.JSONSchemaProps, path string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields || reflect.PointerTo(t).Implements(unmarshaler) {
		return ""
	}
	switch t.Kind() {
	case reflect.Struct:
		return missingFields(t, s, path)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() != reflect.Uint8 { // that is text
			return missingItems(t.Elem(), s.Items, path)
		}
	case reflect.Map:
		if s.AdditionalProperties == nil || s.AdditionalProperties.Schema == nil {
			return path + ".*"
		}
		return missing(t.Elem(), s.AdditionalProperties.Schema, path+".*")
	}
	return ""
}

func missingFields(t reflect.Type, s *apiextensionsv1.JSONSchemaProps, path string) string {
	for i := range t.NumField() {
		name, inline := nameOf(t.Field(i))
		property, described := s.Properties[name]
		next := path + "." + name
		switch {
		case inline:
			property, next = *s, path
		case name == "":
			continue
		case !described:
			return next
		}
		if missing := missing(t.Field(i).Type, &property, next); missing != "" {
			return missing
		}
	}
	return ""
}

func missingItems(t reflect.Type, items *apiextensionsv1.JSONSchemaPropsOrArray, path string) string {
	if items == nil || items.Schema == nil {
		return path + "[]"
	}
	return missing(t, items.Schema, path+"[]")
}

// nameOf returns the name of a field in JSON; empty for a field that is not encoded. The fields of an inline struct
// take its place.
func nameOf(field reflect.StructField) (name string, inline bool) {
	tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	switch {
	case tag == "-" || !field.IsExported():
		return "", false
	case tag == "":
		return field.Name, field.Anonymous || slices.Contains(strings.Split(options, ","), "inline")
	}
	return tag, false
}
