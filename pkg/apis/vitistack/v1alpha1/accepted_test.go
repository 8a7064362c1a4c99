package v1alpha1_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// Names of files in testdata that have one object with all of its fields.
const (
	machine = "machine"
	network = "networkconfiguration"
	class   = "machineclass"
)

// TestObjectsAreStoredAsTheyAre: testdata has one object of each kind, status included.
func TestObjectsAreStoredAsTheyAre(t *testing.T) {
	for _, name := range []string{machine, network, class} {
		t.Run(name, func(t *testing.T) {
			want := crd.Load(t, name)
			stored := server.StoreWithStatus(t, want)
			for _, part := range []string{"spec", "status"} {
				if diff := cmp.Diff(want.Object[part], stored.Object[part]); diff != "" {
					t.Errorf("%s is stored otherwise (-want +got):\n%s", part, diff)
				}
			}
		})
	}
}

// TestObjectsComeThroughGo: what Go reads and writes again is the same object.
func TestObjectsComeThroughGo(t *testing.T) {
	for name, object := range map[string]client.Object{
		machine: &v1alpha1.Machine{}, network: &v1alpha1.NetworkConfiguration{}, class: &v1alpha1.MachineClass{},
	} {
		t.Run(name, func(t *testing.T) {
			comesThrough(t, server.StoreWithStatus(t, crd.Load(t, name)), object)
		})
	}
}

// comesThrough reads an object into a Go type and writes it back. Nothing gets lost but values that mean the same as none,
// such as false, which Go leaves out.
func comesThrough(t *testing.T, stored *unstructured.Unstructured, object client.Object) {
	t.Helper()
	if err := server.Get(t.Context(), client.ObjectKeyFromObject(stored), object); err != nil {
		t.Fatal(err)
	}
	written := stored.DeepCopy()
	for range 2 {
		if err := errors.Join(server.Update(t.Context(), object), server.Status().Update(t.Context(), object)); err != nil {
			t.Fatal(err)
		}
		before := written.GetResourceVersion()
		if err := server.Get(t.Context(), client.ObjectKeyFromObject(stored), written); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"spec", "status"} {
			if diff := cmp.Diff(meaning(stored.Object[part]), meaning(written.Object[part])); diff != "" {
				t.Errorf("Go writes another %s (-want +got):\n%s", part, diff)
			}
		}
		if same := cmp.Equal(stored.Object["spec"], written.Object["spec"]); same && before != written.GetResourceVersion() {
			t.Error("writing the object again changed it")
		}
		stored = written.DeepCopy()
	}
}

// meaning is a value without what means the same as nothing. An efi, acpi or apic that is false means something.
func meaning(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, inner := range value {
			if slices.Contains([]string{"efi", "acpi", "apic", "enabled", "default"}, key) {
				kept[key] = inner
			} else if inner := meaning(inner); inner != nil {
				kept[key] = inner
			}
		}
		if len(kept) > 0 {
			return kept
		}
		return nil
	case []any:
		var kept []any
		for _, inner := range value {
			kept = append(kept, meaning(inner))
		}
		return kept
	case bool:
		if !value {
			return nil
		}
	}
	return value
}

// TestExamplesAreAccepted: nothing of the examples is refused, pruned, or lost by Go.
func TestExamplesAreAccepted(t *testing.T) {
	content, err := os.ReadFile("testdata/examples.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(content), "\n---\n")
	if len(documents) < 11 {
		t.Fatalf("there are %d examples, and more are expected", len(documents))
	}
	for _, document := range documents {
		example := &unstructured.Unstructured{Object: crd.Parse(t, document)}
		t.Run(example.GetKind()+"/"+example.GetName(), func(t *testing.T) {
			stored := server.Store(t, example)
			if diff := cmp.Diff(example.Object["spec"], stored.Object["spec"]); diff != "" {
				t.Errorf("the spec is stored otherwise (-want +got):\n%s", diff)
			}
			comesThrough(t, stored, map[string]client.Object{
				"Machine": &v1alpha1.Machine{}, "NetworkConfiguration": &v1alpha1.NetworkConfiguration{}, "MachineClass": &v1alpha1.MachineClass{},
			}[example.GetKind()])
		})
	}
}

var (
	name62 = strings.Repeat("n", 62)
	name63 = strings.Repeat("n", 63)
)

// atTheLimits are changes to the objects of testdata that the API server accepts.
var atTheLimits = map[string]map[string]string{
	machine: {
		"nothing at all":                 "spec: <remove>",
		"an empty spec":                  "spec: {template: <remove>, resources: <remove>, disks: <remove>, networks: <remove>, bootOrder: <remove>, cloudInit: <remove>, domain: <remove>}",
		"nulls":                          "spec: {template: null, resources: null, disks: null, networks: null, bootOrder: null, cloudInit: null, domain: null, network: null}",
		"empty objects":                  "spec: {resources: {cpu: {}, memory: {}}, disks: [], networks: [], bootOrder: [], cloudInit: {}, domain: {machine: {}, features: {}, firmware: {bootloader: {}}}}",
		"the longest name":               "{metadata: {name: " + name63 + "}, spec: {disks: []}}",
		"the longest claim":              "{metadata: {name: m}, spec: {disks: [{name: " + name62[:61] + "}]}}",
		"the longest name of a disk":     "spec: {disks: [{name: " + name62[:58] + "}]}",
		"a disk without a name":          "spec: {disks: [{size: 1Gi}]}",
		"an unknown template":            "spec: {template: huge}",
		"a template and no class":        `spec: {machineClass: ""}`,
		"a class and no template":        `spec: {machineClass: medium, template: ""}`,
		"the least processors":           "spec: {resources: {cpu: {cores: 1, threads: 1, sockets: 1}}, cpu: {cores: 1, threadsPerCore: 1, sockets: 1}}",
		"the most processors":            "spec: {resources: {cpu: {cores: 256, threads: 8, sockets: 16}}, cpu: {cores: 256, threadsPerCore: 8, sockets: 16}}",
		"bytes without a suffix":         `spec: {resources: {memory: {size: "1"}}}`,
		"a fraction":                     "spec: {resources: {memory: {size: 1.5Gi}}}",
		"an exponent":                    `spec: {resources: {memory: {size: "1e9"}}}`,
		"suffixes":                       "spec: {disks: [{name: a, size: 1k}, {name: b, size: 1Ki}, {name: c, size: 1M}, {name: d, size: 1Ti}, {name: e, size: 1P}, {name: f, size: 1Ei}]}",
		"the least disk in GiB":          "spec: {disks: [{sizeGB: 1}]}",
		"the largest disk in GiB":        "spec: {disks: [{sizeGB: 65536}]}",
		"no memory of a class":           "spec: {memory: 0}",
		"all modes of access":            "spec: {disks: [{name: a, accessMode: ReadWriteOnce}, {name: b, accessMode: ReadWriteMany}, {name: c, accessMode: ReadOnlyMany}]}",
		"both modes of volumes":          "spec: {disks: [{name: a, volumeMode: Filesystem}, {name: b, volumeMode: Block}]}",
		"all sources":                    "spec: {disks: [{name: a, source: {containerDisk: {image: a, imagePullSecret: b}}}, {name: b, size: 1Gi, source: {pvc: {name: a}}}, {name: c, source: {snapshot: {name: a}}}]}",
		"all imports":                    `spec: {disks: [{name: a, size: 1Gi, source: {http: {url: "http://[2001:db8::1]:8080/a%20b.qcow2?token=x@y", secretRef: {name: a}, certConfigMapRef: {name: b}}}}, {name: b, size: 1Gi, source: {registry: {url: "docker://localhost:5000/a/b:1@sha256:` + strings.Repeat("0f", 32) + `", secretRef: {name: a}, certConfigMapRef: {name: b}}}}, {name: c, size: 1Gi, source: {http: {url: "https://example.com"}}}]}`,
		"a bus that is not known":        "spec: {disks: [{type: gp3}]}",
		"all models":                     "spec: {networks: [{name: a, networkName: a, model: virtio}, {name: b, networkName: a, model: e1000}, {name: c, networkName: a, model: rtl8139}, {name: d, networkName: a, model: e1000e}, {name: e, networkName: a, model: igb}, {name: f, networkName: a, model: ne2k_pci}, {name: g, networkName: a, model: pcnet}]}",
		"names of interfaces":            "spec: {networks: [{name: Eth_0-a, networkName: a}, {name: " + name63 + ", networkName: a}]}",
		"a MAC address with dashes":      "spec: {networks: [{name: a, networkName: a, macAddress: 52-54-00-AA-00-0F}]}",
		"an empty boot order":            "spec: {bootOrder: []}",
		"all words of the boot order":    "spec: {bootOrder: [cdrom, network, disk]}",
		"inline data before a Secret":    "spec: {cloudInit: {userData: a, secretRef: {name: a}}}",
		"one of two sources is empty":    `spec: {cloudInit: {userData: "", userDataBase64: YQ==, networkData: a, networkDataBase64: ""}}`,
		"a key that is left out":         "spec: {cloudInit: {secretRef: {name: a, key: <remove>}}}",
		"BIOS":                           "spec: {domain: {firmware: {bootloader: {efi: false}}}}",
		"Secure Boot":                    "spec: {domain: {firmware: {bootloader: {efi: true, secureBoot: true}}}}",
		"neither EFI nor BIOS":           "spec: {domain: {firmware: {bootloader: {efi: <remove>}}}}",
		"features that are switched off": "spec: {domain: {features: {acpi: false, apic: false, hyperv: false}}}",
	},
	network: {
		"nothing at all":       "spec: <remove>",
		"an empty spec":        "spec: {bridge: <remove>, vlan: <remove>}",
		"an empty bridge":      `spec: {bridge: ""}`,
		"the longest bridge":   "spec: {bridge: a_b-c.d01234567}",
		"no VLAN":              "spec: {vlan: 0}",
		"the last VLAN":        "spec: {vlan: 4094}",
		"a VLAN and no bridge": "spec: {bridge: <remove>}",
	},
	class: {
		"only what is required": "spec: {enabled: <remove>, default: <remove>, category: <remove>, displayName: <remove>, description: <remove>, machineProviders: <remove>, gpu: <remove>, cpu: {sockets: <remove>, threads: <remove>}, memory: {minQuantity: <remove>, maxQuantity: <remove>}}",
		"zeros":                 "spec: {cpu: {cores: 1, sockets: 0, threads: 0}, gpu: {cores: 0}}",
		"the most":              "spec: {cpu: {cores: 256, sockets: 16, threads: 8}}",
	},
}

func TestValuesAtTheLimitsAreAccepted(t *testing.T) {
	for kind, table := range atTheLimits {
		for name, change := range table {
			t.Run(kind+"/"+name, func(t *testing.T) {
				if err := server.Create(t.Context(), crd.Load(t, kind, change), client.DryRunAll); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestTheLargestMachineIsAffordable creates and updates an object with as many entries as the schema allows, each with as
// much for the rules to check as fits. The API server gives up on an object whose rules cost too much.
func TestTheLargestMachineIsAffordable(t *testing.T) {
	var disks, networks []any
	for i := range 32 {
		disks = append(disks, crd.Parse(t, fmt.Sprintf("{name: a%048d, size: 123456789012345.123456789Ei, sizeGB: 65536, storageClass: a%0252d, accessMode: ReadWriteOnce, volumeMode: Filesystem, source: {pvc: {name: a%0252d}}}", i, i, i)))
	}
	for i := range 16 {
		networks = append(networks, crd.Parse(t, fmt.Sprintf("{name: a%062d, networkName: a%0252d, macAddress: '52:54:00:00:00:%02x'}", i, i, i)))
	}
	largest := crd.Load(t, machine)
	crd.Merge(largest.Object, map[string]any{"spec": map[string]any{
		"disks": disks, "networks": networks,
		"cloudInit": map[string]any{"userData": strings.Repeat("a", 262144), "networkData": strings.Repeat("a", 262144)},
	}})
	created := server.Store(t, largest)
	for _, disk := range created.Object["spec"].(map[string]any)["disks"].([]any) {
		disk.(map[string]any)["size"] = "923456789012345.123456789Ei"
	}
	if err := server.Update(t.Context(), created, client.DryRunAll); err != nil {
		t.Error(err)
	}
}

// TestNoFieldIsForgotten holds the objects of testdata complete: every field is in one of them, or in an example.
func TestNoFieldIsForgotten(t *testing.T) {
	content := ""
	for _, name := range []string{machine, network, class, "examples"} {
		file, err := os.ReadFile("testdata/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		content += string(file)
	}
	checked := 0
	for _, file := range []string{machines, networks, classes} {
		for _, field := range crd.Fields(t, file) {
			last := strings.TrimSuffix(field.Path[strings.LastIndex(field.Path, ".")+1:], "[]")
			if last == "" || !strings.HasPrefix(field.Path, "spec.") && !strings.HasPrefix(field.Path, "status.") {
				continue
			}
			checked++
			if !regexp.MustCompile(`[ {]`+last+`:`).MatchString(content) && last != "snapshot" && last != "pvc" && last != "imagePullSecret" && last != "hyperv" {
				t.Errorf("no object of testdata has %s of %s", field.Path, file)
			}
		}
	}
	if checked < 150 {
		t.Errorf("the test has found %d fields and overlooks most", checked)
	}
}
