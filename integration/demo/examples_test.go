package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/integration/harness/stage"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// The demo checks the content of these manifests, and its hints change them.
func TestExamplesAreWhatTheDemoTalksAbout(t *testing.T) {
	config, err := readKVMConfig(filepath.Join("..", "..", examples, "kvmconfig.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if masters, workers := len(config.Spec.Cluster.Masters), len(config.Spec.Cluster.Workers); masters != 1 || workers != 2 {
		t.Errorf("the cluster has %d masters and %d workers, want 1 and 2", masters, workers)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", examples, "kvmconfig.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{automatic, twoWorkers, twoMachines} {
		if n := strings.Count(string(text), part); n != 1 {
			t.Errorf("the example says %q %d times: the demo cannot replace it", part, n)
		}
	}
	content, err := os.ReadFile(filepath.Join("..", "..", stage.Web))
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	document, _, _ := strings.Cut(string(content), "\n---\n")
	if err := yaml.UnmarshalStrict([]byte(document), &deployment); err != nil {
		t.Fatal(err)
	}
	if replicas := *deployment.Spec.Replicas; int(replicas) != len(config.Spec.Cluster.Workers) {
		t.Errorf("web has %d pods, want one on each worker", replicas)
	}
	hints := (&demo{state: state{root: "/checkout", dir: "/checkout/.demo"}, config: config, smolVMs: true}).hints()
	want, err := os.ReadFile("testdata/hints.txt")
	if os.Getenv("UPDATE") != "" {
		want, err = []byte(hints), os.WriteFile("testdata/hints.txt", []byte(hints), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), hints); diff != "" {
		t.Errorf("the hints (-want +got), UPDATE=1 rewrites them:\n%s", diff)
	}
	if without := (&demo{config: config}).hints(); strings.Contains(without, "smolvm") {
		t.Error("the hints talk of SmolVMs where there are none")
	}
}

// TestTheSmolVMIsTheOneThatTheHintsTalkAbout: it boots from the image that there is, and the API server takes it.
func TestTheSmolVMIsTheOneThatTheHintsTalkAbout(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", examples, "smolvm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var vm v1alpha1.SmolVM
	if err := yaml.UnmarshalStrict(text, &vm); err != nil {
		t.Fatal(err)
	}
	if vm.Name != "hello" || vm.Namespace != "default" || vm.Spec.Image != stage.SmolVMImage || !vm.Spec.Running {
		t.Errorf("the example is %+v", vm)
	}
}
