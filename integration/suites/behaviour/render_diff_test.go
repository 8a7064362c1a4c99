package behaviour_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/cmd"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// TestRenderDiff: the command prints nothing for a cluster that matches its KVMConfig, and shows the effect of a
// change.
func TestRenderDiff(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("diff1").Workers(1).Obj())
	lab.Eventually(t, lab.Timeout, func() error {
		out, err := renderDiff(t, config)
		if err != nil {
			err = fmt.Errorf("%w:\n%s", err, out)
		}
		return err
	})
	config.Spec.KVM.Workers[0].CPUs = 3
	out, err := renderDiff(t, config)
	if err == nil || !strings.Contains(err.Error(), "differs") {
		t.Errorf("err = %v, want one that says that the cluster differs", err)
	}
	for _, want := range []string{"Deployment diff1/worker-w0aaa", `-          value: "2"`, `+          value: "3"`} {
		if !strings.Contains(out, want) {
			t.Errorf("the difference does not show %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "master-m0aaa") || strings.Contains(out, "PRIVATE KEY") {
		t.Errorf("the difference shows more than what changes:\n%s", out)
	}
}

func renderDiff(t *testing.T, config *v1alpha1.KVMConfig) (string, error) {
	t.Helper()
	// A client drops the kind of the objects that it reads.
	config.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("KVMConfig"))
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kvmconfig.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	settings := lab.Settings()
	var out bytes.Buffer
	c := cmd.New()
	c.SetOut(&out)
	c.SetArgs([]string{
		"render", "-f", file, "--diff", "--kubeconfig", theLab.Kubeconfig(),
		"--service.ingress.classname=nginx", "--service.image.runner=" + settings.RunnerImage,
	})
	err = c.ExecuteContext(t.Context())
	return out.String(), err
}
