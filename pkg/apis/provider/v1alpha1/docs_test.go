package v1alpha1_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
)

func TestTheExamplesAreAccepted(t *testing.T) {
	files, err := filepath.Glob(root + "/docs/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			example := &unstructured.Unstructured{Object: crd.Parse(t, string(content))}
			if err := server.Create(context.Background(), example, client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEveryFieldIsDocumented looks for every field in the page of its CRD. Machines of masters and workers are the same,
// and conditions have their own section.
func TestEveryFieldIsDocumented(t *testing.T) {
	for page, file := range map[string]string{"kvmconfig.md": clusters, "release.md": releases} {
		content, err := os.ReadFile(root + "/docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range crd.Leaves(t, file) {
			path = strings.Replace(path, "spec.kvm.masters[]", "spec.kvm.workers[]", 1)
			if strings.HasPrefix(path, "status.conditions") || strings.HasPrefix(path, "status.cluster.resources[].conditions") {
				continue
			}
			if !strings.Contains(string(content), "`"+path+"`") {
				t.Errorf("docs/%s does not speak of %s", page, path)
			}
		}
	}
}
