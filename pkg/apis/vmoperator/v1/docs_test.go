package v1_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
)

func TestTheExamplesOfTheDocumentationAreAccepted(t *testing.T) {
	for _, name := range []string{"minimal", "debian", "full"} {
		content, err := os.ReadFile(root + "/docs/examples/virtualmachine-" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		example := &unstructured.Unstructured{Object: crd.Parse(t, string(content))}
		if err := server.Create(context.Background(), example, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	content, err := os.ReadFile(root + "/docs/examples/virtualmachine-debian.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(page(t), "```yaml\n"+string(content)+"```") {
		t.Error("the page has another first machine than docs/examples/virtualmachine-debian.yaml")
	}
}

// TestEveryFieldIsDocumented looks for every field in the page of the CRD. Types of Kubernetes are not described again.
func TestEveryFieldIsDocumented(t *testing.T) {
	content, documented := page(t), 0
	for _, path := range crd.Leaves(t, machines) {
		for _, whole := range []string{"spec.affinity", "status.conditions", "spec.vm.disks[].volumeClaimTemplate.spec.selector", "spec.vm.disks[].volumeClaimTemplate.spec.dataSource", "spec.vm.disks[].volumeClaimTemplate.spec.dataSourceRef"} {
			if strings.HasPrefix(path, whole+".") || strings.HasPrefix(path, whole+"[") {
				path = whole
			}
		}
		documented++
		if !strings.Contains(content, "`"+path+"`") {
			t.Errorf("docs/virtualmachine.md does not speak of %s", path)
		}
	}
	if documented < 80 {
		t.Errorf("the test has found %d fields and overlooks most", documented)
	}
}

func page(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(root + "/docs/virtualmachine.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
