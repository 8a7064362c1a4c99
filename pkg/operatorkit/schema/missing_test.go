package schema_test

import (
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	smolvmv1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	vmv1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/schema"
)

// TestMissing removes every field from the definitions, one at a time.
func TestMissing(t *testing.T) {
	for crd, kind := range map[string]struct {
		version string
		object  reflect.Type
	}{
		"provider.giantswarm.io_kvmconfigs": {"v1alpha1", reflect.TypeFor[v1alpha1.KVMConfig]()},
		"release.giantswarm.io_releases":    {"v1alpha1", reflect.TypeFor[releasev1alpha1.Release]()},
		"vmoperator.jdrupes.org_vms":        {"v1", reflect.TypeFor[vmv1.VirtualMachine]()},

		"../files/smolvm/vm.smolvm.dev_smolvms":     {"v1alpha1", reflect.TypeFor[smolvmv1alpha1.SmolVM]()},
		"../files/smolvm/vm.smolvm.dev_smolvmnodes": {"v1alpha1", reflect.TypeFor[smolvmv1alpha1.SmolVMNode]()},
	} {
		t.Run(crd, func(t *testing.T) {
			whole := parse(t, readCRD(t, crd))
			if missing := schema.Missing(whole, kind.version, kind.object); missing != "" {
				t.Fatalf("the definition lacks %s", missing)
			}
			count := 0
			for _, path := range pathsOf(whole.Spec.Versions[0].Schema.OpenAPIV3Schema, "") {
				if !strings.HasPrefix(path, "spec") && !strings.HasPrefix(path, "status") {
					continue
				}
				definition := whole.DeepCopy()
				remove(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, "", path)
				if missing := schema.Missing(definition, kind.version, kind.object); missing != path {
					t.Errorf("without %s the definition is said to lack %q", path, missing)
				}
				count++
			}
			if count < 5 {
				t.Errorf("%d fields were taken out; that cannot be all", count)
			}
			t.Logf("%d fields taken out", count)
		})
	}
}

// TestMissingIsNotOnlyFields of the schema.
func TestMissingIsNotOnlyFields(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*apiextensionsv1.CustomResourceDefinition)
		want   string
	}{
		"another version": {func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Name = "v1" }, "version v1alpha1"},
		"not served":      {func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Served = false }, "version v1alpha1"},
		"no status":       {func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Subresources = nil }, "the subresource status"},
		"no schema":       {func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Schema = nil }, "a schema of version v1alpha1"},
		"another one besides": {func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Versions = append(d.Spec.Versions, d.Spec.Versions[0])
		}, ""},
		"any spec": {func(d *apiextensionsv1.CustomResourceDefinition) {
			yes := true
			d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			definition := parse(t, readCRD(t, "provider.giantswarm.io_kvmconfigs"))
			c.change(definition)
			if got := schema.Missing(definition, "v1alpha1", reflect.TypeFor[v1alpha1.KVMConfig]()); got != c.want {
				t.Errorf("lacks %q, want %q", got, c.want)
			}
		})
	}
}

func parse(t *testing.T, data []byte) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(data, definition); err != nil {
		t.Fatal(err)
	}
	return definition
}

// pathsOf returns the paths of all fields, as Missing writes them.
func pathsOf(s *apiextensionsv1.JSONSchemaProps, path string) []string {
	var paths []string
	for name, property := range s.Properties {
		next := strings.TrimPrefix(path+"."+name, ".")
		paths = append(append(paths, next), pathsOf(&property, next)...)
	}
	if s.Items != nil && s.Items.Schema != nil {
		paths = append(paths, pathsOf(s.Items.Schema, path+"[]")...)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		paths = append(paths, pathsOf(s.AdditionalProperties.Schema, path+".*")...)
	}
	return paths
}

// remove removes one field.
func remove(s *apiextensionsv1.JSONSchemaProps, path, gone string) {
	for name, property := range s.Properties {
		next := strings.TrimPrefix(path+"."+name, ".")
		if next == gone {
			delete(s.Properties, name)
			continue
		}
		remove(&property, next, gone)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		remove(s.Items.Schema, path+"[]", gone)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		remove(s.AdditionalProperties.Schema, path+".*", gone)
	}
}
