package stage

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/project"
)

// TestChartTakesTheValuesOfSmolVMs: with them it renders a runtime of the image that `make machine-tools` builds, which asks
// the registry of the stage.
func TestChartTakesTheValuesOfSmolVMs(t *testing.T) {
	arguments := []string{"template", "stage", "../../../helm/kvm-operator", "--set=image.tag=" + project.Version()}
	for _, value := range smolVMValues("10.10.0.1:5000", "/cluster/node-0") {
		arguments = append(arguments, "--set="+value)
	}
	out, err := exec.CommandContext(t.Context(), "../../../.tools/helm", arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{
		`image: "docker.io/kvm-operator/kvm-operator-smolvm-runtime:` + project.Version() + `"`, "--cgroup-parent=/cluster/node-0/smolvm",
		"--registry-mirror=docker.io=10.10.0.1:5000", "--registry-insecure=10.10.0.1:5000", "--allow-emulation",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("there is no %s in\n%s", want, out)
		}
	}
}
