package virtualmachine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// examples are VirtualMachines as the API server stores them.
const examples = "../../../pkg/apis/vmoperator/v1/testdata"

var settings = virtualmachine.Settings{RunnerImage: "registry.example.org/runner:4.0.0", ImageRepository: "vmop-image-repository", AllowedImages: []string{"registry.example/vm"}, Bridges: []string{"br-lab"}}

func example(t *testing.T, name string) *v1.VirtualMachine {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, name))
	if err != nil {
		t.Fatal(err)
	}
	vm := &v1.VirtualMachine{}
	if err := yaml.UnmarshalStrict(text, vm); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	vm.Namespace, vm.Name = "lab", "desk-7"
	vm.UID, vm.ResourceVersion = "6f2c1a52-9d0b-4b58-8f0e-000000000001", "42"
	return vm
}

// TestEveryObjectIsAsRecorded compares the objects of examples with testdata/golden. UPDATE=1 rewrites them.
func TestEveryObjectIsAsRecorded(t *testing.T) {
	for _, name := range []string{"minimal-defaulted.yaml", "full-defaulted.yaml"} {
		state := virtualmachine.Plan(virtualmachine.Observed{VM: example(t, name), Settings: settings, Now: time.Unix(0, 0)})
		if state.Err != nil {
			t.Errorf("%s: %v", name, state.Err)
		}
		got, path := rendered(t, state), filepath.Join("testdata", "golden", name)
		if os.Getenv("UPDATE") != "" {
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s is rendered otherwise (-recorded +rendered):\n%s", path, diff)
		}
	}
}

// rendered returns all objects of a virtual machine as YAML.
func rendered(t *testing.T, s *virtualmachine.State) string {
	t.Helper()
	var texts []string
	for _, resource := range apply.Resources(newChain(nil, nil, unknownPassword)) {
		desired, err := resource.Build(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range desired.Objects {
			kind, err := apiutil.GVKForObject(object, scheme.Scheme)
			if err != nil {
				t.Fatal(err)
			}
			object.GetObjectKind().SetGroupVersionKind(kind)
			text, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, "# "+resource.Handler+"\n"+string(text))
		}
	}
	return strings.Join(texts, "---\n")
}
