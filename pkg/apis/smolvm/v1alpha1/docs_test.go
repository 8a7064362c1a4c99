package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
)

// TestTheExampleOfTheDocumentationIsAccepted, which is the spec of testdata/smolvm.yaml.
func TestTheExampleOfTheDocumentationIsAccepted(t *testing.T) {
	content, err := os.ReadFile("testdata/smolvm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	example, _, _ := strings.Cut(string(content), "status:\n")
	if !strings.Contains(page(t), "```yaml\n"+example+"```") {
		t.Errorf("docs/smolvm.md does not have the example\n%s", example)
	}
	object := crd.Load(t, machine)
	object.Object = crd.Parse(t, example)
	if err := server.Create(t.Context(), object, client.DryRunAll); err != nil {
		t.Error(err)
	}
}

// TestEveryFieldIsDocumented looks for every field in the page. Types of Kubernetes are not described again.
func TestEveryFieldIsDocumented(t *testing.T) {
	content, documented := page(t), 0
	_, ofNodes, _ := strings.Cut(content, "\n## SmolVMNode\n")
	for file, text := range map[string]string{machines: content, nodes: ofNodes} {
		for _, path := range crd.Leaves(t, file) {
			for _, whole := range []string{"spec.tolerations", "status.conditions"} {
				if strings.HasPrefix(path, whole+"[") {
					path = whole
				}
			}
			documented++
			if !strings.Contains(text, "`"+path+"`") {
				t.Errorf("docs/smolvm.md does not speak of %s of %s", path, file)
			}
		}
	}
	if documented < 45 {
		t.Errorf("the test has found %d fields and overlooks most", documented)
	}
}

// TestEveryNameIsDocumented looks for all conditions, reasons, phases, annotations and the finalizer.
func TestEveryNameIsDocumented(t *testing.T) {
	content, names := page(t), 0
	for _, file := range []string{"names.go", "smolvmstatus.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			declared, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			value, err := strconv.Unquote(declared.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			names++
			if !strings.Contains(content, "`"+value+"`") {
				t.Errorf("docs/smolvm.md does not speak of %s, %s", value, declared.Names[0].Name)
			}
			return false
		})
	}
	if names < 50 {
		t.Errorf("the test has found %d names and overlooks most", names)
	}
}

func page(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(root + "/docs/smolvm.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
