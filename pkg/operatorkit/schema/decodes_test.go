package schema_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	smolvmv1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	vmv1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/schema"
)

// kinds are the CRDs and the objects of testdata that have every field of them.
var kinds = map[string]struct {
	crd, object string
	// variants replace fields that exclude others, by JSON merge patches.
	variants []string
}{
	"KVMConfig": {crd: "provider.giantswarm.io_kvmconfigs", object: "kvmconfig", variants: []string{
		`{spec: {addons: {cni: {type: custom, manifests: "a"}}}}`,
		`{spec: {etcd: {snapshots: {volume: {nfs: null, claimName: snapshots}}}}}`,
		`{spec: {etcd: {snapshots: {volume: {nfs: null, hostPath: /snapshots}}}}}`,
	}},
	"Release": {crd: "release.giantswarm.io_releases", object: "release"},
	"SmolVM": {crd: "../files/smolvm/vm.smolvm.dev_smolvms", object: "smolvm", variants: []string{
		`{spec: {image: null, from: a}}`,
	}},
	"SmolVMNode": {crd: "../files/smolvm/vm.smolvm.dev_smolvmnodes", object: "smolvmnode"},
	"VirtualMachine": {crd: "vmoperator.jdrupes.org_vms", object: "virtualmachine", variants: []string{
		`{spec: {image: {repository: null, path: null, version: null, source: a}}}`,
		`{spec: {cloudInit: {userData: null, userDataFrom: &secret {secretKeyRef: {name: a, key: b}}, networkConfig: null, networkConfigFrom: *secret}}}`,
		`{spec: {permissions: [{role: a}]}}`,
		`{spec: {vm: {maximumCpus: null, cpuTopology: {sockets: 1, diesPerSocket: 1, coresPerDie: 1, threadsPerCore: 1}}}}`,
		`{spec: {vm: {networks: [{user: {device: e1000, net: 10.9.0.0/24}}]}}}`,
		`{spec: {vm: {networks: [{pod: {device: e1000}}]}}}`,
		`{spec: {vm: {disks: [{cdrom: {image: a}}]}}}`,
	}},
}

// odd are values that some field or other cannot hold. Numbers are at the limits of what 32 and 64 bits, and a float,
// can hold.
var odd = []string{
	`null`, `true`, `0`, `1`, `-1`, `1.0`, `1.5`, `1e3`, `1e15`, `1e16`, `1e-400`, `-1e300`,
	`2147483647`, `2147483648`, `-2147483648`, `-2147483649`, `4294967296`, `4294967297`,
	`9007199254740993`, `9223372036854775807`, `9223372036854775808`, `-9223372036854775809`, `18446744073709551616`, `1e19`,
	`""`, `" "`, `"a"`, `"0"`, `"1"`, `"-1"`, `"+1"`, `"1."`, `".5"`, `"1.5"`, `"1.5.5"`, `"1k"`, `"1Ki"`, `"1e3"`, `"1E3"`, `"1e1.5"`, `"1e+3"`, `"1e-3"`,
	`"1e-9999999"`, `"1e99"`, `"1e999"`, `"1e99999999999"`, `"0.0000000001"`, `"99999999999999999999Ei"`, `"0x10"`, `"1_000"`, `"1 Gi"`, `"1K"`, `"1mi"`,
	`"1h"`, `"1.5h"`, `"1h30m"`, `"1H"`, `"1d"`, `"-1s"`, `"1us"`, `"1µs"`, `"1μs"`, `"999999h"`, `"999999.9h"`, `"999999h999999h999999h"`, `"999999h999999h"`,
	`"99999h99999h99999h99999h"`, `"999999m999999m999999m999999m"`, `"9999999h"`, `"2562048h"`, `"0.999999999999h"`,
	`"2026-11-22"`, `"2026-11-22T06:00:00Z"`, `"2026-11-22t06:00:00z"`, `"2026-11-22T06:00:00.5Z"`, `"2026-11-22T06:00:00,5Z"`, `"2026-11-22T06:00:00x5Z"`,
	`"2026-11-22T06:00:00"`, `"2026-11-22T06:00:00+01:00"`, `"2026-11-22T06:00:00+25:00"`, `"2026-11-22T06:00:00+99:99"`, `"2026-11-22T24:00:00Z"`,
	`"2026-11-22T6:00:00Z"`, `"2026-02-30T06:00:00Z"`, `"0000-01-01T00:00:00Z"`, `"2026-11-22T06:00:60Z"`, `"2026-11-22T06:00:00Z\n"`, `"2026-11-22T06:00:00.1234567891234Z"`,
	`[]`, `{}`, `[null]`, `[{}]`, `[1]`, `["a"]`, `[["a"]]`, `{"a":null}`, `{"a":1}`, `{"a":"a"}`, `{"a":4294967296}`, `{"a":1e19}`, `{"a":1.5}`,
}

// TestWhatTheSchemaAcceptsDecodes: the API server lists all objects of a kind at once, so a single one that Go cannot
// decode hides all others from the operator. Every field of every kind is set to every odd value, one at a time.
func TestWhatTheSchemaAcceptsDecodes(t *testing.T) {
	for name, kind := range kinds {
		definition := readCRD(t, kind.crd)
		// API servers before 1.36 ignore these formats, so minimum and maximum have to be sufficient.
		lenient, err := schema.New(regexp.MustCompile(`(?m)^ +format: int(32|64)\n`).ReplaceAll(definition, nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fields(t, definition) {
			t.Run(name+"/"+strings.Join(f.path, "."), func(t *testing.T) {
				base := baseWith(t, kind.object, kind.variants, f.path)
				if err := lenient.Complete(t.Context(), runtime.DeepCopyJSON(base)); err != nil {
					t.Fatalf("the object is refused as it is: %v", err)
				}
				for _, value := range odd {
					object := runtime.DeepCopyJSON(base)
					set(t, object, f.path, parseJSON(t, value))
					err := decode(object)
					// Validating the whole schema is slow; what the field's own schema rejects, the whole one rejects.
					if err == nil || value != "null" && f.refuses(parseJSON(t, value)) || lenient.Complete(t.Context(), object) != nil {
						continue
					}
					// Defaults may have been filled in.
					if err := decode(object); err != nil {
						t.Errorf("%s is accepted and cannot be decoded: %v", value, err)
					}
				}
			})
		}
	}
}

// TestNumbersHaveTheBoundsOfTheirTypes, and quantities and durations have rules: this also covers fields that no
// fixture has.
func TestNumbersHaveTheBoundsOfTheirTypes(t *testing.T) {
	for name, kind := range kinds {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(readCRD(t, kind.crd), &crd); err != nil {
			t.Fatal(err)
		}
		checked := 0
		walk(nil, crd.Spec.Versions[0].Schema.OpenAPIV3Schema, func(path []string, p *apiextensionsv1.JSONSchemaProps) {
			where := name + "." + strings.Join(path, ".")
			switch {
			case p.Format == "int32":
				checked++
				if strings.HasSuffix(where, ".preferredDuringSchedulingIgnoredDuringExecution.[].weight") {
					return // Kubernetes' own type: the rules of spec.affinity are about it
				}
				if p.Minimum == nil || p.Maximum == nil || *p.Minimum < -1<<31 || *p.Maximum > 1<<31-1 {
					t.Errorf("%s is a number of 32 bits without a minimum and a maximum inside", where)
				}
			case p.XIntOrString && len(p.XValidations) == 0:
				t.Errorf("%s is a quantity without a rule", where)
			case p.Type == "object" && p.AdditionalProperties != nil && p.AdditionalProperties.Schema.Format == "int32" && !mentions(p, "2147483647"):
				t.Errorf("%s holds numbers of 32 bits without a rule", where)
			}
		})
		if name == "KVMConfig" && checked < 15 {
			t.Errorf("only %d numbers of 32 bits were found", checked)
		}
	}
}

func mentions(p *apiextensionsv1.JSONSchemaProps, text string) bool {
	return slices.ContainsFunc(p.XValidations, func(r apiextensionsv1.ValidationRule) bool { return strings.Contains(r.Rule, text) })
}

func readCRD(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../../helm/kvm-operator/crds", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// walk visits a schema and those below it; elements of lists are "[]". It does not visit the values of maps.
func walk(path []string, p *apiextensionsv1.JSONSchemaProps, visit func([]string, *apiextensionsv1.JSONSchemaProps)) {
	visit(path, p)
	for _, name := range slices.Sorted(maps.Keys(p.Properties)) {
		property := p.Properties[name]
		walk(append(slices.Clone(path), name), &property, visit)
	}
	if p.Items != nil {
		walk(append(slices.Clone(path), "[]"), p.Items.Schema, visit)
	}
}

// A specimen is a field of spec or status, and the part of the schema that is about it, without rules.
type specimen struct {
	path []string
	own  validation.SchemaValidator
}

func (f specimen) refuses(value any) bool { return !f.own.Validate(value).IsValid() }

// fields are all fields of spec and status.
func fields(t *testing.T, definition []byte) []specimen {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(definition, &crd); err != nil {
		t.Fatal(err)
	}
	var all []specimen
	walk(nil, crd.Spec.Versions[0].Schema.OpenAPIV3Schema, func(path []string, p *apiextensionsv1.JSONSchemaProps) {
		if len(path) == 0 || path[0] != "spec" && path[0] != "status" {
			return
		}
		p = p.DeepCopy()
		if p.Format == "int32" || p.Format == "int64" {
			p.Format = ""
		}
		var internal apiextensions.JSONSchemaProps
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(p, &internal, nil); err != nil {
			t.Fatal(err)
		}
		own, _, err := validation.NewSchemaValidator(&internal)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, specimen{path: path, own: own})
	})
	return all
}

// baseWith is the object of testdata, or the first variant of it, that has the field.
func baseWith(t *testing.T, name string, variants []string, path []string) map[string]any {
	t.Helper()
	for _, variant := range append([]string{"{}"}, variants...) {
		object := readObject(t, name)
		patch(object, parseYAML(t, variant))
		if _, ok := get(object, path); ok {
			return object
		}
	}
	t.Fatalf("testdata/%s.yaml and its variants do not have this field", name)
	return nil
}

func readObject(t *testing.T, name string) map[string]any {
	t.Helper()
	content, err := os.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return parseYAML(t, string(content))
}

func parseYAML(t *testing.T, text string) map[string]any {
	t.Helper()
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return parseJSON(t, string(content)).(map[string]any)
}

// parseJSON keeps whole numbers whole, as the API server does.
func parseJSON(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := utiljson.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

// patch is a JSON merge patch (RFC 7386).
func patch(into, from map[string]any) {
	for name, value := range from {
		source, isMap := value.(map[string]any)
		target, alsoMap := into[name].(map[string]any)
		switch {
		case value == nil:
			delete(into, name)
		case isMap && alsoMap:
			patch(target, source)
		default:
			into[name] = value
		}
	}
}

func get(value any, path []string) (any, bool) {
	for _, name := range path {
		switch container := value.(type) {
		case map[string]any:
			var ok bool
			if value, ok = container[name]; !ok {
				return nil, false
			}
		case []any:
			value = container[0]
		}
	}
	return value, true
}

func set(t *testing.T, object map[string]any, path []string, value any) {
	t.Helper()
	parent, ok := get(object, path[:len(path)-1])
	if !ok {
		t.Fatalf("there is no %s", path)
	}
	switch container := parent.(type) {
	case map[string]any:
		container[path[len(path)-1]] = value
	case []any:
		container[0] = value
	}
}

// codecs are those of the operator's caches.
var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, releasev1alpha1.AddToScheme, smolvmv1alpha1.AddToScheme, vmv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return serializer.NewCodecFactory(scheme)
}()

// decode decodes the object as the operator's caches do.
func decode(object map[string]any) error {
	content, err := utiljson.Marshal(object)
	if err != nil {
		return fmt.Errorf("it cannot even be encoded: %w", err)
	}
	_, err = runtime.Decode(codecs.UniversalDeserializer(), content)
	return err
}
