package cmd_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/cmd"
	"github.com/kvm-operator/kvm-operator/flag"
)

const examples = "../docs/examples/"

// run runs the program. It returns its output and the error as main would print it.
func run(t *testing.T, stdin string, args ...string) (stdout, failure string) {
	t.Helper()
	c := cmd.New()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetIn(strings.NewReader(stdin))
	c.SetArgs(args)
	if err := c.ExecuteContext(t.Context()); err != nil {
		failure = err.Error()
	}
	return out.String(), failure
}

// printed lists the objects of a rendering as "Kind namespace/name".
func printed(t *testing.T, text string) []string {
	t.Helper()
	var list []string
	for _, document := range strings.Split(text, "---\n")[1:] {
		var object struct {
			Kind     string
			Metadata struct{ Namespace, Name string }
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		list = append(list, object.Kind+" "+strings.TrimPrefix(object.Metadata.Namespace+"/"+object.Metadata.Name, "/"))
	}
	return list
}

func file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// minimal returns the smallest example with changes: pairs of old and new text.
func minimal(t *testing.T, changes ...string) string {
	t.Helper()
	text := file(t, examples+"minimal.yaml")
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			t.Fatalf("the example does not hold %q", changes[i])
		}
		text = strings.ReplaceAll(text, changes[i], changes[i+1])
	}
	return text
}

// TestRenderListsEveryObject: the smallest example renders these objects, in the order of the chain.
func TestRenderListsEveryObject(t *testing.T) {
	out, failure := run(t, "", "render", "-f", examples+"minimal.yaml")
	got := strings.Join(printed(t, out), "\n") + "\n"
	golden := filepath.Join("testdata", "minimal.golden")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{file(t, golden), ""}, []string{got, failure}); diff != "" {
		t.Errorf("objects and error (UPDATE=1 records the objects) (-recorded +got):\n%s", diff)
	}
}

// TestRenderingsHideSecrets: renderings end up in terminal histories and in tickets.
func TestRenderingsHideSecrets(t *testing.T) {
	secret := `
---
apiVersion: v1
kind: Secret
metadata: {name: ab1cd-encryption, namespace: default, labels: {giantswarm.io/cluster: ab1cd, giantswarm.io/randomkey: encryption}}
data: {encryption: TURFeU16UTFOamM0T1dGaVkyUmxaakF4TWpNME5UWTNPRGxoWW1Oa1pXWT0=}
`
	out, failure := run(t, minimal(t)+secret, "render", "-f", "-")
	hidden := 0
	for _, document := range strings.Split(out, "---\n")[1:] {
		var object struct {
			Kind             string
			Data, StringData map[string]string
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		for _, values := range []map[string]string{object.Data, object.StringData} {
			for name, value := range values {
				if object.Kind != "Secret" {
					continue
				}
				if hidden++; !strings.HasPrefix(value, "(hidden, SHA-256 ") {
					t.Errorf("the value of %s is shown:\n%s", name, document)
				}
			}
		}
	}
	if hidden == 0 {
		t.Error("the rendering holds no Secret at all")
	}
	if slices.Contains(printed(t, out), "Secret default/ab1cd-encryption") || failure != "" {
		t.Errorf("error %q; an adopted Secret is rendered", failure)
	}
}

func TestWhereRenderingsComeFrom(t *testing.T) {
	release := "\n---\n" + file(t, examples+"release.yaml")
	labeled := []string{"  namespace: default\n", "  namespace: default\n  labels: {release.giantswarm.io/version: 20.0.0}\n"}
	second := minimal(t, "ab1cd", "ef2gh")
	asList := func(documents ...string) string {
		var items []any
		for _, document := range documents {
			var item map[string]any
			if err := yaml.Unmarshal([]byte(document), &item); err != nil {
				t.Fatal(err)
			}
			items = append(items, item)
		}
		text, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	namespaces := []string{"--handler", "namespace"}
	for name, test := range map[string]struct {
		stdin string
		args  []string
		want  []string
	}{
		"a file":                          {"", []string{"-f", examples + "minimal.yaml"}, []string{"Namespace ab1cd"}},
		"standard input":                  {minimal(t), []string{"-f", "-"}, []string{"Namespace ab1cd"}},
		"a list":                          {asList(minimal(t), second), []string{"-f", "-"}, []string{"Namespace ab1cd", "Namespace ef2gh"}},
		"a list of KVMConfigs":            {strings.Replace(asList(minimal(t), second), "kind: List", "kind: KVMConfigList", 1), []string{"-f", "-"}, []string{"Namespace ab1cd", "Namespace ef2gh"}},
		"several documents":               {minimal(t) + "\n---\n\n---\n" + second, []string{"-f", "-"}, []string{"Namespace ab1cd", "Namespace ef2gh"}},
		"several files":                   {second, []string{"-f", examples + "minimal.yaml", "-f", "-"}, []string{"Namespace ab1cd", "Namespace ef2gh"}},
		"with a Release":                  {minimal(t, labeled...) + release, []string{"-f", "-"}, []string{"Namespace ab1cd"}},
		"with a Release in another file":  {minimal(t, labeled...), []string{"-f", "-," + examples + "release.yaml"}, []string{"Namespace ab1cd"}},
		"without a namespace":             {minimal(t, "  namespace: default\n", ""), []string{"-f", "-"}, []string{"Namespace ab1cd"}},
		"other kinds are passed over":     {minimal(t) + "\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", []string{"-f", "-"}, []string{"Namespace ab1cd"}},
		"two handlers":                    {minimal(t), []string{"-f", "-", "--handler", "serviceaccount"}, []string{"Namespace ab1cd", "ServiceAccount ab1cd/ab1cd"}},
		"the example with every setting":  {file(t, examples+"full.yaml") + volumes, []string{"-f", "-"}, []string{"Namespace prod1"}},
		"an object read from the cluster": {minimal(t, "  namespace: default\n", "  namespace: default\n  uid: abc\n  resourceVersion: '4'\n  managedFields: []\n"), []string{"-f", "-"}, []string{"Namespace ab1cd"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, failure := run(t, test.stdin, append(append([]string{"render"}, test.args...), namespaces...)...)
			if diff := cmp.Diff([]any{test.want, ""}, []any{printed(t, out), failure}); diff != "" {
				t.Errorf("objects and error (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMachinesAreRendered beside clusters, and a handler may be one of either.
func TestMachinesAreRendered(t *testing.T) {
	all := []string{"Secret default/desk-7-cloud-init", "Secret default/desk-7-display-secret", "ConfigMap default/desk-7", "StatefulSet default/desk-7"}
	for name, test := range map[string]struct {
		stdin string
		args  []string
		want  []string
	}{
		"a virtual machine":  {"", []string{"-f", examples + "virtualmachine-full.yaml"}, all},
		"one handler of it":  {"", []string{"-f", examples + "virtualmachine-full.yaml", "--handler=statefulset"}, all[3:]},
		"beside a KVMConfig": {minimal(t), []string{"-f", examples + "virtualmachine-full.yaml,-", "--handler=namespace,statefulset"}, []string{"Namespace ab1cd", all[3]}},
		"the smallest one":   {"", []string{"-f", examples + "virtualmachine-minimal.yaml", "--handler=configmap"}, []string{"ConfigMap default/tiny"}},
	} {
		args := append([]string{"render", "--" + flag.VMImageRepository + "=images", "--" + flag.VMBridges + "=br-lab"}, test.args...)
		out, failure := run(t, test.stdin, args...)
		if diff := cmp.Diff([]any{test.want, ""}, []any{printed(t, out), failure}); diff != "" {
			t.Errorf("%s: objects and error (-want +got):\n%s", name, diff)
		}
	}
}

// volumes are the PersistentVolumes that the example with every setting mounts.
const volumes = `
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: a, labels: {mount-tag: store-1-data}}, spec: {capacity: {storage: 1Gi}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: b, labels: {mount-tag: store-1-log}}, spec: {capacity: {storage: 1Gi}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: c, labels: {mount-tag: store-2-data}}, spec: {capacity: {storage: 1Gi}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: d, labels: {mount-tag: store-2-log}}, spec: {capacity: {storage: 1Gi}}}
`

// TestRenderingsThatFail: the error names the object and what is wrong. Everything that can be rendered is still
// printed.
func TestRenderingsThatFail(t *testing.T) {
	for name, test := range map[string]struct {
		stdin string
		args  []string
		want  string
		// printed says whether objects are printed despite the error.
		printed bool
	}{
		"an unknown field": {
			minimal(t, "    id: ab1cd\n", "    id: ab1cd\n    mastres: []\n"), []string{"-f", "-"},
			"-: KVMConfig ab1cd is not valid: spec.cluster.mastres: there is no such field", false,
		},
		"a value that breaks a rule": {
			minimal(t, "api.ab1cd", "kube.ab1cd"), []string{"-f", "-"},
			`-: KVMConfig ab1cd is not valid: spec.cluster.kubernetes.api.domain: Invalid value: `, false,
		},
		"a value of the wrong kind": {
			minimal(t, "cpus: 2", "cpus: two"), []string{"-f", "-"},
			`-: KVMConfig ab1cd is not valid: `, false,
		},
		"no YAML":         {"a: [", []string{"-f", "-"}, "-: reading YAML: ", false},
		"no KVMConfig":    {"", []string{"-f", examples + "release.yaml"}, `no KVMConfig, VirtualMachine, Machine or NetworkConfiguration in ["` + examples + `release.yaml"]`, false},
		"no such file":    {"", []string{"-f", "nowhere.yaml"}, "open nowhere.yaml: no such file or directory", false},
		"no file named":   {"", nil, `required flag(s) "filename" not set`, false},
		"an argument":     {"", []string{"-f", "-", "minimal.yaml"}, `unknown command "minimal.yaml" for "kvm-operator render"`, false},
		"unknown setting": {minimal(t), []string{"-f", "-", "--service.registry.domian=x"}, "unknown flag: --service.registry.domian", false},
		"an unknown handler": {
			minimal(t), []string{"-f", "-", "--handler", "namespace,deploymnet"},
			`there is no handler "deploymnet"; the handlers are namespace, certificates, randomkey, `, false,
		},
		"a Release that is not among the files": {
			minimal(t, "  namespace: default\n", "  namespace: default\n  labels: {release.giantswarm.io/version: 20.0.0}\n"), []string{"-f", "-"},
			"KVMConfig default/ab1cd: Release v20.0.0 does not exist; create it, or remove the label release.giantswarm.io/version and set spec.versions", true,
		},
		"a host volume that is not among the files": {
			file(t, examples+"full.yaml"), []string{"-f", "-"},
			"KVMConfig default/prod1: worker store-1: no PersistentVolume carries the label mount-tag=store-1-data; create one or remove the host volume\n", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, failure := run(t, test.stdin, append([]string{"render"}, test.args...)...)
			if !strings.HasPrefix(failure, test.want) {
				t.Errorf("it begins otherwise (-want +got):\n%s", cmp.Diff(test.want, failure))
			}
			if got := out != ""; got != test.printed {
				t.Errorf("objects are printed: %t, want %t:\n%s", got, test.printed, out)
			}
		})
	}
}

// TestVersionTellsWhatThisIs: the output has the original operator's fields, as YAML.
func TestVersionTellsWhatThisIs(t *testing.T) {
	out, failure := run(t, "", "version")
	var fields map[string]string
	if err := yaml.Unmarshal([]byte(out), &fields); err != nil || failure != "" {
		t.Fatalf("%v %s:\n%s", err, failure, out)
	}
	var empty []string
	for _, name := range []string{"arch", "description", "gitCommit", "goVersion", "os", "source", "version"} {
		if fields[name] == "" {
			empty = append(empty, name)
		}
	}
	if diff := cmp.Diff([]any{[]string(nil), "kvm-operator"}, []any{empty, fields["name"]}); diff != "" {
		t.Errorf("empty fields and name (-want +got):\n%s", diff)
	}
}
