package kubevirt_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kubevirtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/helm"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/kubevirt"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/schema"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/service/controller/machine"
)

// settings are the defaults of the operator.
var settings = vitistack.Settings{ManagedBy: "kubevirt-operator", MACSet: 0x12, CNIVersion: "1.0.0", AccessMode: "ReadWriteMany", VolumeMode: "Block"}

// example is a Machine with what it depends on.
type example struct {
	machine *v1alpha1.Machine
	inputs  machine.Inputs
}

// documents returns the YAML documents of a file.
func documents(t *testing.T, text []byte) [][]byte {
	t.Helper()
	var all [][]byte
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, document)
	}
}

func kindOf(t *testing.T, document []byte) string {
	t.Helper()
	var object struct{ Kind string }
	if err := yaml.Unmarshal(document, &object); err != nil {
		t.Fatal(err)
	}
	return object.Kind
}

func decoded[T any](t *testing.T, document []byte) T {
	t.Helper()
	var object T
	if err := yaml.UnmarshalStrict(document, &object); err != nil {
		t.Fatalf("%v:\n%s", err, document)
	}
	return object
}

// accepted returns a Machine as the API server stores it.
func accepted(t *testing.T, document []byte) *v1alpha1.Machine {
	t.Helper()
	definition, err := schema.New(helm.MachineCRD)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.Unmarshal(document, &object); err != nil {
		t.Fatal(err)
	}
	if err := definition.Complete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	m := &v1alpha1.Machine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, m); err != nil {
		t.Fatal(err)
	}
	return m
}

func load(t *testing.T, path string) example {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var e example
	for _, document := range documents(t, text) {
		switch kind := kindOf(t, document); kind {
		case "Machine":
			e.machine = accepted(t, document)
		case "NetworkConfiguration":
			e.inputs.Networks = append(e.inputs.Networks, decoded[v1alpha1.NetworkConfiguration](t, document))
		case "MachineClass":
			e.inputs.Classes = append(e.inputs.Classes, decoded[v1alpha1.MachineClass](t, document))
		case "StorageClass":
			e.inputs.StorageClasses = append(e.inputs.StorageClasses, decoded[storagev1.StorageClass](t, document))
		case "Secret":
			e.inputs.Secrets = append(e.inputs.Secrets, decoded[corev1.Secret](t, document))
		default:
			t.Fatalf("%s: what is a %s?", path, kind)
		}
	}
	return e
}

// TestEveryObjectIsAsRecorded compares the objects of the examples with testdata/golden. UPDATE=1 rewrites them.
func TestEveryObjectIsAsRecorded(t *testing.T) {
	examples, err := filepath.Glob("testdata/examples/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("there are no examples (%v)", err)
	}
	for _, path := range examples {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			e := load(t, path)
			rendered, err := machine.Render(settings, e.machine, e.inputs)
			if err != nil {
				t.Fatal(err)
			}
			got, golden := printed(t, rendered), filepath.Join("testdata", "golden", name)
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s is rendered otherwise (-recorded +rendered):\n%s", path, diff)
			}
		})
	}
	recorded, err := filepath.Glob("testdata/golden/*.yaml")
	if err != nil || len(recorded) != len(examples) {
		t.Errorf("%d examples and %d recorded files (%v); remove what is left over", len(examples), len(recorded), err)
	}
}

// TestKubeVirtsTypesDecodeWhatIsRecorded: a field that KubeVirt or Kubernetes does not know would be dropped silently.
func TestKubeVirtsTypesDecodeWhatIsRecorded(t *testing.T) {
	recorded, err := filepath.Glob("testdata/golden/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, path := range recorded {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range documents(t, text) {
			kind := kindOf(t, document)
			kinds[kind]++
			switch kind {
			case "VirtualMachine":
				vm := decoded[kubevirtv1.VirtualMachine](t, document)
				checkRules(t, path, &vm)
			case "PersistentVolumeClaim":
				decoded[corev1.PersistentVolumeClaim](t, document)
			case "Secret":
				decoded[corev1.Secret](t, document)
			case "DataVolume":
				decoded[cdiv1.DataVolume](t, document)
			default:
				t.Errorf("%s has a %s", path, kind)
			}
		}
	}
	t.Logf("decoded strictly: %v", kinds)
	if kinds["VirtualMachine"] != len(recorded) || kinds["PersistentVolumeClaim"] == 0 || kinds["Secret"] == 0 || kinds["DataVolume"] == 0 {
		t.Errorf("%d files have %v", len(recorded), kinds)
	}
}

// printed returns objects as YAML, without what says nothing.
func printed(t *testing.T, rendered []apply.Rendered) string {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), kubevirt.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, part := range rendered {
		for _, object := range part.Objects {
			texts = append(texts, toYAML(t, scheme, object))
		}
	}
	return strings.Join(texts, "---\n")
}

func toYAML(t *testing.T, scheme *runtime.Scheme, object client.Object) string {
	t.Helper()
	kind, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		t.Fatal(err)
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	delete(content, "status")
	text, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
