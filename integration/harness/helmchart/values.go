package helmchart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Value is a value of values.yaml that is set as a whole.
type Value struct {
	Description string
	Default     any
}

var (
	comment = regexp.MustCompile(`^ *# -- (.*)$`)
	keyLine = regexp.MustCompile(`^( *)([A-Za-z]+):`)
)

// Values reads the values of a chart with their descriptions, as helm-docs does: the comment above a key, after "# --".
func Values(t *testing.T, chart string) map[string]Value {
	t.Helper()
	text := read(t, chart, "values.yaml")
	content := map[string]any{}
	Decode(t, text, &content)
	values := map[string]Value{}
	var path []string
	description := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if found := comment.FindStringSubmatch(line); found != nil {
			description = found[1]
			continue
		}
		found := keyLine.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		path = append(path[:len(found[1])/2], found[2])
		if description != "" {
			standard, _ := Lookup(content, path)
			values[strings.Join(path, ".")] = Value{description, standard}
		}
		description = ""
	}
	return values
}

// Lookup returns the value at a path.
func Lookup(content map[string]any, path []string) (any, bool) {
	found, ok := content[path[0]]
	inner, nested := found.(map[string]any)
	if !ok || len(path) == 1 {
		return found, ok
	}
	if !nested {
		return nil, false
	}
	return Lookup(inner, path[1:])
}

// schema is the part of a JSON schema that tests examine.
type schema struct {
	Description          string
	Properties           map[string]schema
	AdditionalProperties any
}

// Described reads the descriptions in the schema of a chart's values, by path, without what belongs to Helm.
func Described(t *testing.T, chart string) map[string]string {
	t.Helper()
	var root schema
	if err := json.Unmarshal(read(t, chart, "values.schema.json"), &root); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	root.described(t, "", all)
	delete(all, "global")
	return all
}

func (s schema) described(t *testing.T, path string, into map[string]string) {
	t.Helper()
	if s.Description != "" {
		into[path] = s.Description
		return
	}
	if s.AdditionalProperties != false {
		t.Errorf("the schema lets anything into %q", path)
	}
	for name, property := range s.Properties {
		property.described(t, strings.TrimPrefix(path+"."+name, "."), into)
	}
}

// Readme returns the README.md that helm-docs makes of a chart.
func Readme(t *testing.T, chart string) string {
	t.Helper()
	var about struct{ Description string }
	Decode(t, read(t, chart, "Chart.yaml"), &about)
	_, body, _ := strings.Cut(string(read(t, chart, "README.md.gotmpl")), "-}}\n")
	text := strings.NewReplacer(
		`{{ template "chart.description" . }}`, about.Description,
		`{{ template "chart.valuesSection" . }}`, table(t, Values(t, chart)),
	).Replace(body)
	return strings.TrimSpace(text) + "\n"
}

// CheckReadme compares the README of a chart with the output of `make helm-docs`. UPDATE=1 writes it.
func CheckReadme(t *testing.T, chart string) {
	t.Helper()
	path, want := filepath.Join(chart, "README.md"), Readme(t, chart)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	readme, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(readme)); diff != "" {
		t.Errorf("README.md is outdated, run make helm-docs (-want +got):\n%s", diff)
	}
}

// table returns the table of values of helm-docs.
func table(t *testing.T, values map[string]Value) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("## Values\n\n| Key | Type | Default | Description |\n|-----|------|---------|-------------|\n")
	for _, path := range slices.Sorted(maps.Keys(values)) {
		var standard bytes.Buffer
		encoder := json.NewEncoder(&standard)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(values[path].Default); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s |\n", path, typeName(values[path].Default), strings.TrimSpace(standard.String()), values[path].Description)
	}
	return b.String()
}

func typeName(standard any) string {
	switch standard.(type) {
	case bool:
		return "bool"
	case float64:
		return "int"
	case string:
		return "string"
	case []any:
		return "list"
	default:
		return "object"
	}
}

func read(t *testing.T, chart, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
