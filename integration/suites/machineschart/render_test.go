// Package machineschart_test tests the chart of the operator for Machines: what it renders, what it rejects, that kubectl
// leads to the same as helm, and whether an operator with only the chart's permissions can do its work.
package machineschart_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/helmchart"
	"github.com/kvm-operator/kvm-operator/pkg/project"
)

const (
	chart     = "../../../helm/kubevirt-operator"
	release   = "kubevirt-operator"
	namespace = "kubevirt-operator-system"
	// full sets every value to something other than its default.
	full = "testdata/full.yaml"
	// several are settings that full cannot have, because it sets every value: three replicas with metrics.
	several = "--set=leaderElection.enabled=true,metrics.enabled=true,serviceAccount.create=true,rbac.create=true"
)

// render returns what helm would install.
func render(t *testing.T, args ...string) string {
	t.Helper()
	return helmchart.Helm(t, append([]string{"template", release, chart, "--namespace=" + namespace, "--kube-version=" + helmchart.Kubernetes}, args...)...)
}

// documents returns the metadata of the rendered objects, and their text by kind and name.
func documents(t *testing.T, text string) (all []metav1.PartialObjectMetadata, byName map[string]string) {
	t.Helper()
	byName = map[string]string{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		object := metav1.PartialObjectMetadata{}
		helmchart.Decode(t, []byte(document), &object)
		if object.Kind == "" {
			continue
		}
		all = append(all, object)
		byName[object.Kind+" "+object.Name] = document
	}
	return all, byName
}

func TestLinterHasNothingToSay(t *testing.T) {
	for name, values := range map[string][]string{
		"with no value set":     nil,
		"with every value set":  {"--values=" + full, several},
		"with no operator left": {"--set=replicaCount=0"},
	} {
		t.Run(name, func(t *testing.T) {
			helmchart.Helm(t, append([]string{"lint", "--strict", "--quiet", "--kube-version=" + helmchart.Kubernetes, chart}, values...)...)
		})
	}
}

// TestEveryObjectIsAsRecorded compares the rendered objects with the golden files in testdata. UPDATE=1 rewrites them.
func TestEveryObjectIsAsRecorded(t *testing.T) {
	records := map[string][]string{
		"testdata/default.golden": nil,
		"testdata/full.golden":    {"--values=" + full, several},
		"testdata/single.golden":  {"--values=" + full, "--set=replicaCount=1"},
	}
	for path, values := range records {
		t.Run(path, func(t *testing.T) {
			got := render(t, values...)
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%s (UPDATE=1 writes it)", err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("objects (UPDATE=1 records them) (-recorded +rendered):\n%s", diff)
			}
		})
	}
	found, err := filepath.Glob("testdata/*.golden")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if _, ok := records[path]; !ok {
			t.Errorf("%s is the record of nothing", path)
		}
	}
}

// TestNamesAreThoseOfTheReferencePage has the names that the page gives, and the image of this project. One is other than
// there: KubeVirt's own operator has the ClusterRole kubevirt-operator.
func TestNamesAreThoseOfTheReferencePage(t *testing.T) {
	_, byName := documents(t, render(t))
	want := []string{
		"ClusterRole kubevirt-operator-manager-role", "ClusterRoleBinding kubevirt-operator-manager-rolebinding",
		"Deployment kubevirt-operator-controller-manager", "Role kubevirt-operator-leader-election",
		"RoleBinding kubevirt-operator-leader-election", "Service kubevirt-operator-controller-manager-metrics",
		"ServiceAccount kubevirt-operator-controller-manager",
	}
	if got := slices.Sorted(maps.Keys(byName)); !slices.Equal(got, want) {
		t.Errorf("the objects are\n%v, want\n%v", got, want)
	}
	deployment := appsv1.Deployment{}
	helmchart.Decode(t, []byte(byName["Deployment kubevirt-operator-controller-manager"]), &deployment)
	if got, want := deployment.Spec.Template.Spec.Containers[0].Image, "docker.io/kvm-operator/kvm-operator:"+project.Version(); got != want {
		t.Errorf("the image is %s, want %s", got, want)
	}
}

func TestNamesBeginWithThatOfTheRelease(t *testing.T) {
	for name, c := range map[string]struct{ release, set, want string }{
		"another release":           {"prod", "", "prod-kubevirt-operator"},
		"a release with a version":  {"kubevirt-operator-4.0", "", "kubevirt-operator-4-0"},
		"another name of the chart": {"prod", "nameOverride=machines", "prod-machines"},
		"another name altogether":   {"prod", "fullnameOverride=viti", "viti"},
		"a long release":            {strings.Repeat("r", 50), "", strings.Repeat("r", 36)},
	} {
		t.Run(name, func(t *testing.T) {
			text := helmchart.Helm(t, "template", c.release, chart, "--namespace=elsewhere", "--kube-version="+helmchart.Kubernetes,
				"--values="+full, several, "--set=fullnameOverride=,nameOverride=,serviceAccount.name=", "--set="+c.set)
			all, _ := documents(t, text)
			for _, object := range all {
				if !strings.HasPrefix(object.Name, c.want) || len(object.Name) > 63 {
					t.Errorf("%s is called %s, want it to begin with %s", object.Kind, object.Name, c.want)
				}
				if !strings.HasPrefix(object.Kind, "Cluster") && object.Namespace != "elsewhere" {
					t.Errorf("%s %s is in namespace %q, want that of the release", object.Kind, object.Name, object.Namespace)
				}
			}
			if len(all) < 9 {
				t.Errorf("there are %d objects only", len(all))
			}
		})
	}
}

// TestNoRuleIsAWildcard: the rules list everything that the operator may do.
func TestNoRuleIsAWildcard(t *testing.T) {
	text := render(t, "--values="+full, several)
	if strings.Contains(text, `"*"`) || strings.Contains(text, "'*'") || strings.Contains(text, "[*]") {
		t.Error("there is a wildcard")
	}
}

func TestEveryValueIsInTheSchemaWithItsDescription(t *testing.T) {
	want := map[string]string{}
	for path, v := range helmchart.Values(t, chart) {
		want[path] = v.Description
	}
	if len(want) < 40 {
		t.Fatalf("the test sees the values %v only", slices.Sorted(maps.Keys(want)))
	}
	if diff := cmp.Diff(want, helmchart.Described(t, chart)); diff != "" {
		t.Errorf("descriptions (-values.yaml +values.schema.json):\n%s", diff)
	}
}

func TestExampleOfFullValuesSetsEveryValue(t *testing.T) {
	text, err := os.ReadFile(full)
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]any{}
	helmchart.Decode(t, text, &content)
	for path, v := range helmchart.Values(t, chart) {
		if set, ok := helmchart.Lookup(content, strings.Split(path, ".")); !ok || reflect.DeepEqual(set, v.Default) {
			t.Errorf("%s sets %s to %v, want another value than the default", full, path, set)
		}
	}
}

// TestReadmeIsThatOfTheValues: the README is the output of `make helm-docs`. UPDATE=1 writes it.
func TestReadmeIsThatOfTheValues(t *testing.T) {
	helmchart.CheckReadme(t, chart)
}

// TestWrongValuesAreRefused: the message names the place and the reason.
func TestWrongValuesAreRefused(t *testing.T) {
	const template = "templates: {x: {memory: {size: 1Gi}, disks: [{size: 1Gi}]"
	for name, c := range map[string]struct{ values, message string }{
		"a value that does not exist":           {"replicas: 2", "at '': additional properties 'replicas' not allowed"},
		"a value of vitistack without effect":   {"autoscaling: {enabled: true}", "at '': additional properties 'autoscaling' not allowed"},
		"metrics of vitistack over TLS":         {"metrics: {secure: true}", "at '/metrics': additional properties 'secure' not allowed"},
		"several operators at work at a time":   {"{replicaCount: 2, leaderElection: {enabled: false}}", "leaderElection.enabled has to be true"},
		"fewer operators than none":             {"replicaCount: -1", "at '/replicaCount': minimum: got -1, want 0"},
		"an image with a tag":                   {"image: {repository: 'registry.example.org/operator:1'}", "at '/image/repository'"},
		"a tag that YAML takes for a number":    {"image: {tag: 4.10}", "at '/image/tag': got number, want string"},
		"an interval without unit":              {"reconcileInterval: 30", "at '/reconcileInterval': got number, want string"},
		"an interval without unit as text":      {`reconcileInterval: "30"`, "at '/reconcileInterval': '30' does not match pattern"},
		"no worker":                             {"maxConcurrentReconciles: 0", "at '/maxConcurrentReconciles': minimum: got 0, want 1"},
		"an address without port":               {"metrics: {bindAddress: localhost}", "at '/metrics/bindAddress': 'localhost' does not match pattern"},
		"a Secret in capital letters":           {"metrics: {tls: {secretName: TLS}}", "at '/metrics/tls/secretName': 'TLS' does not match pattern"},
		"TLS at the address of probes":          {`{metrics: {tls: {secretName: tls}}, healthProbe: {bindAddress: ":8080"}}`, "metrics.bindAddress and healthProbe.bindAddress have to be different"},
		"no probes":                             {`healthProbe: {bindAddress: "0"}`, "at '/healthProbe/bindAddress': '0' does not match pattern"},
		"an unknown level":                      {"logging: {level: trace}", "at '/logging/level': value must be one of 'error', 'warn', 'info', 'debug'"},
		"a template that is built in":           {"templates: {small: {memory: {size: 1Gi}, disks: [{size: 1Gi}]}}", "at '/templates/small': 'not' failed"},
		"a template without memory":             {"templates: {x: {disks: [{size: 1Gi}]}}", "at '/templates/x': missing property 'memory'"},
		"a template with a misspelt field":      {template + ", cores: 2}}", "at '/templates/x': additional properties 'cores' not allowed"},
		"a template of too many cores":          {template + ", cpu: {cores: 300}}}", "at '/templates/x/cpu/cores': maximum: got 300, want 256"},
		"an octet of three digits":              {`macSet: "123"`, "at '/macSet': '123' does not match pattern"},
		"an octet that YAML takes for a number": {"macSet: 12", "at '/macSet': got number, want string"},
		"an access mode in short":               {"pvcAccessMode: RWX", "at '/pvcAccessMode': value must be one of"},
		"a volume mode in small letters":        {"pvcVolumeMode: block", "at '/pvcVolumeMode': value must be one of 'Filesystem', 'Block'"},
		"a CNI version of one number":           {`nadCniVersion: "1"`, "at '/nadCniVersion': '1' does not match pattern"},
		"a label that is none":                  {"managedBy: a b", "at '/managedBy': 'a b' does not match pattern"},
		"resources of an unknown kind":          {"resources: {memory: 1Gi}", "at '/resources': additional properties 'memory' not allowed"},
		"a switch as text":                      {`rbac: {create: "yes"}`, "at '/rbac/create': got string, want boolean"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, err := helmchart.Run(t, "template", release, chart, "--kube-version="+helmchart.Kubernetes, "--values="+helmchart.Write(t, c.values))
			if err == nil || !strings.Contains(output, c.message) {
				t.Errorf("the answer (%v) is %q, want it to say %q", err, output, c.message)
			}
		})
	}
}
