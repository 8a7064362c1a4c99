package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

const (
	ofMachines = "machines.md"
	ofNetworks = "networkconfiguration.md"
)

var example = regexp.MustCompile("(?s)```yaml\n(apiVersion: vitistack.io/.*?)```")

// TestExamplesOfTheDocumentationAreAccepted, each with nothing that the API server does not know.
func TestExamplesOfTheDocumentationAreAccepted(t *testing.T) {
	found := 0
	for _, name := range []string{ofMachines, ofNetworks} {
		for _, match := range example.FindAllStringSubmatch(page(t, name), -1) {
			found++
			object := &unstructured.Unstructured{Object: crd.Parse(t, match[1])}
			if err := server.Create(t.Context(), object, client.DryRunAll); err != nil {
				t.Errorf("docs/%s has an example that is refused: %v\n%s", name, err, match[1])
			}
		}
	}
	if found < 6 {
		t.Errorf("the test has found %d examples and overlooks most", found)
	}
}

// TestEveryFieldIsDocumented looks for every field in the pages. Conditions are not described again.
func TestEveryFieldIsDocumented(t *testing.T) {
	whole, ofClasses, _ := strings.Cut(page(t, ofMachines), "\n## MachineClass\n")
	documented := 0
	for file, text := range map[string]string{machines: whole, networks: page(t, ofNetworks), classes: ofClasses} {
		for _, path := range crd.Leaves(t, file) {
			if strings.HasPrefix(path, "status.conditions[") {
				path = "status.conditions"
			}
			documented++
			if !strings.Contains(text, "`"+path+"`") {
				t.Errorf("no page speaks of %s of %s", path, file)
			}
		}
	}
	if documented < 150 {
		t.Errorf("the test has found %d fields and overlooks most", documented)
	}
}

// TestEveryNameIsDocumented looks for all labels, finalizers, phases, conditions, reasons and events.
func TestEveryNameIsDocumented(t *testing.T) {
	content, labels, names := page(t, ofMachines)+page(t, ofNetworks), page(t, "labels-and-annotations.md"), 0
	parsed, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		declared, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		name := declared.Names[0].Name
		value, err := strconv.Unquote(declared.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		names++
		if !strings.Contains(content, "`"+value+"`") {
			t.Errorf("no page speaks of %s, %s", value, name)
		}
		if strings.HasPrefix(name, "Label") || strings.Contains(name, "Finalizer") {
			if !strings.Contains(labels, "`"+value+"`") {
				t.Errorf("docs/labels-and-annotations.md does not have %s, %s", value, name)
			}
		}
		return false
	})
	if names < 55 {
		t.Errorf("the test has found %d names and overlooks most", names)
	}
}

// TestEveryErrorTypeHasASection in docs/failure-modes.md, in its index, and in the table of docs/machines.md.
func TestEveryErrorTypeHasASection(t *testing.T) {
	modes, table := page(t, "failure-modes.md"), page(t, ofMachines)
	for _, kind := range v1alpha1.ErrorTypes() {
		if !regexp.MustCompile(`(?m)^### ([A-Za-z]+, )*` + kind + `(, [A-Za-z]+)*( \(Machine\))?$`).MatchString(modes) {
			t.Errorf("docs/failure-modes.md has no section of %s", kind)
		}
		if !regexp.MustCompile("(?m)^\\| \\[[^]]*`" + kind + "`[^]]*\\]\\(#").MatchString(modes) {
			t.Errorf("the index of docs/failure-modes.md does not have %s", kind)
		}
		if !strings.Contains(table, "\n| `"+kind+"` |") {
			t.Errorf("docs/machines.md has no row of %s", kind)
		}
	}
}

// TestEveryRuleAboutMoreThanOneValueIsDocumented looks for the beginning of the messages of such rules, which the API
// server reports for an object and not for a value.
func TestEveryRuleAboutMoreThanOneValueIsDocumented(t *testing.T) {
	content, rules := page(t, ofMachines), 0
	quoted := regexp.MustCompile("(?m)^\\| [^|]+ \\| `([^`]+)` \\|$").FindAllStringSubmatch(content, -1)
	for _, field := range crd.Fields(t, machines) {
		for _, rule := range field.Rules {
			if field.Leaf {
				continue
			}
			rules++
			found := false
			for _, row := range quoted {
				found = found || strings.HasPrefix(strings.Replace(rule.Message, "networkData and networkData", "userData and userData", 1), row[1])
			}
			if !found {
				t.Errorf("docs/machines.md does not have the rule %q", rule.Message)
			}
		}
	}
	if rules < 10 {
		t.Errorf("the test has found %d rules and overlooks most", rules)
	}
}

func page(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(root + "/docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
