// Package helmchart is what the tests of charts share: it runs helm, and reads the values of a chart with their
// descriptions.
package helmchart

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Kubernetes is the version that charts are rendered for. Any version works.
const Kubernetes = "1.36.0"

// Root returns the root of the checkout.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// Run runs helm without the user's own settings and returns its output and its error.
func Run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	tool := filepath.Join(Root(), ".tools", "helm")
	if _, err := os.Stat(tool); err != nil {
		t.Fatalf("the tool helm is missing: %s (run `make tools` in the repository root)", err)
	}
	command := exec.Command(tool, args...)
	command.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	output, err := command.CombinedOutput()
	return string(output), err
}

// Helm runs commands that have to succeed.
func Helm(t *testing.T, args ...string) string {
	t.Helper()
	output, err := Run(t, args...)
	if err != nil {
		t.Fatalf("helm %s: %s\n%s", strings.Join(args, " "), err, output)
	}
	return output
}

// Decode reads YAML.
func Decode(t *testing.T, document []byte, into any) {
	t.Helper()
	if err := yaml.Unmarshal(document, into); err != nil {
		t.Fatalf("%s\n%s", err, document)
	}
}

// Write creates a file of values.
func Write(t *testing.T, values string) string {
	t.Helper()
	Decode(t, []byte(values), &map[string]any{})
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
