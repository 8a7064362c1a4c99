package addons_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// params are those of a cluster that sets nothing.
func params(changes ...func(*addons.Params)) addons.Params {
	p := addons.Params{
		Cluster:      state.WithDefaults(fixture.MakeCluster("abc12").Workers(2).Obj()).Spec.Cluster,
		Versions:     v1alpha1.Versions{Kubernetes: "1.35.4"},
		APIServerURL: "https://master.abc12.svc.cluster.local:443",
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

// everything sets everything that can be set.
func everything(p *addons.Params) {
	p.Emulated = true
	p.Registry = "registry.example.org/mirror"
	p.KubeProxy.Image, p.CNI.PluginImage = "example.org/kube-proxy:1", "example.org/plugin:1"
	p.CNI.Type, p.CNI.MTU = addons.CNIFlannel, 1400
	p.APIServerURL = "https://[fd00::1]"
	p.Cluster.Calico.Subnet, p.Cluster.Calico.CIDR = "10.1.2.3", 20
	p.Cluster.Kubernetes.Domain, p.Cluster.Kubernetes.DNS.IP = "example.internal", "172.31.0.53"
	p.Cluster.Kubernetes.NetworkSetup.KubeProxy.ConntrackMaxPerCore = 32768
}

// TestEveryObjectIsAsRecorded in testdata/<parameters>/<add-on>.yaml. UPDATE=1 rewrites the golden files.
func TestEveryObjectIsAsRecorded(t *testing.T) {
	got := map[string]string{}
	for folder, p := range map[string]addons.Params{"default": params(), "everything-set": params(everything)} {
		for name, objects := range split(t, p) {
			got[filepath.Join("testdata", folder, name+".yaml")] = text(t, objects)
		}
	}
	if os.Getenv("UPDATE") != "" {
		rewrite(t, got)
	}
	want := map[string]string{}
	paths, err := filepath.Glob("testdata/*/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		recorded, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want[path] = string(recorded)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other objects, or a record that belongs to no test (UPDATE=1 records them) (-recorded +built):\n%s", diff)
	}
}

func rewrite(t *testing.T, records map[string]string) {
	t.Helper()
	if err := os.RemoveAll("testdata"); err != nil {
		t.Fatal(err)
	}
	for path, record := range records {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(record), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// split returns the objects by add-on.
func split(t *testing.T, p addons.Params) map[string][]client.Object {
	t.Helper()
	flannel, errFlannel := addons.Flannel(p)
	kubeProxy, errProxy := addons.KubeProxy(p)
	if errFlannel != nil || errProxy != nil {
		t.Fatal(errFlannel, errProxy)
	}
	return map[string][]client.Object{"rbac": addons.RBAC(p), "coredns": addons.CoreDNS(p), "kube-proxy": kubeProxy, "flannel": flannel}
}

// text returns objects as people read them.
func text(t *testing.T, objects []client.Object) string {
	t.Helper()
	var all bytes.Buffer
	for _, object := range objects {
		gvk, err := apiutil.GVKForObject(object, scheme.Scheme)
		if err != nil {
			t.Fatal(err)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		delete(content, "status")
		content["apiVersion"], content["kind"] = gvk.ToAPIVersionAndKind()
		document, err := yaml.Marshal(withoutNulls(content))
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString("---\n")
		all.Write(document)
	}
	return all.String()
}

func withoutNulls(content map[string]any) map[string]any {
	maps.DeleteFunc(content, func(_ string, value any) bool { return value == nil })
	for _, value := range content {
		if inner, ok := value.(map[string]any); ok {
			withoutNulls(inner)
		}
	}
	return content
}

func TestPodNetworkIsThatOfTheType(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*addons.Params)
		want   []client.Object
	}{
		"flannel without a type":        {func(*addons.Params) {}, split(t, params())["flannel"]},
		"flannel by its name":           {func(p *addons.Params) { p.CNI.Type = addons.CNIFlannel }, split(t, params())["flannel"]},
		"the pod network is the user's": {func(p *addons.Params) { p.CNI.Type = addons.CNINone }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := addons.NetworkObjects(params(test.change))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(text(t, test.want), text(t, got)); diff != "" {
				t.Errorf("other objects (-want +got):\n%s", diff)
			}
		})
	}
}

// TestKindsAreComplete: a missing kind would never be pruned, and one that no add-on has would be watched for nothing.
func TestKindsAreComplete(t *testing.T) {
	kinds := func(objects []client.Object) []string {
		found := map[string]bool{}
		for _, object := range objects {
			gvk, err := apiutil.GVKForObject(object, everyKind(t))
			if err != nil {
				t.Fatal(err)
			}
			found[gvk.String()] = true
		}
		return slices.Sorted(maps.Keys(found))
	}
	all, err := objectsOf(params())
	if err != nil {
		t.Fatal(err)
	}
	own, err := addons.Custom(params(custom))
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, own...)
	if diff := cmp.Diff(kinds(addons.Kinds()), kinds(all)); diff != "" {
		t.Errorf("other kinds (-said +built):\n%s", diff)
	}
}

// TestWhatDoesNotFitIsRefused with a sentence that names the cluster and the value.
func TestWhatDoesNotFitIsRefused(t *testing.T) {
	address := func(url string) string {
		return `the address of the API server of cluster abc12 is "` + url + `"; it has to be a URL that begins with https://`
	}
	for name, test := range map[string]struct {
		change func(*addons.Params)
		want   string
	}{
		"an unknown pod network": {func(p *addons.Params) { p.CNI.Type = "calico" }, `the pod network of cluster abc12: there is no type "calico"; choose flannel, custom or none`},
		"a subnet that is none":  {func(p *addons.Params) { p.Cluster.Calico.Subnet = "x" }, `spec.cluster.calico of cluster abc12: "x/16" is not a network; correct subnet and cidr`},
		"the same without flannel": {
			func(p *addons.Params) { p.Cluster.Calico.Subnet, p.CNI.Type = "x", "none" }, `spec.cluster.calico of cluster abc12: "x/16" is not a network; correct subnet and cidr`,
		},
		"no address of the API server": {func(p *addons.Params) { p.APIServerURL = "" }, address("")},
		"one without scheme":           {func(p *addons.Params) { p.APIServerURL = "master:443" }, address("master:443")},
		"one that is no URL":           {func(p *addons.Params) { p.APIServerURL = "https://%" }, address("https://%")},
		"the same without flannel, too": {
			func(p *addons.Params) { p.APIServerURL, p.CNI.Type = "http://master", "none" }, address("http://master"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := objectsOf(params(test.change))
			if err == nil {
				t.Fatalf("it is accepted: %d objects", len(objects))
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Errorf("another error (-want +got):\n%s", diff)
			}
		})
	}
}

// objectsOf returns all add-ons of a cluster that are not disabled, in the order in which they are applied.
func objectsOf(p addons.Params) ([]client.Object, error) {
	network, err := addons.NetworkObjects(p)
	if err != nil {
		return nil, err
	}
	all := append(addons.RBAC(p), network...)
	if !p.KubeProxy.Disabled {
		objects, err := addons.KubeProxy(p)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	if !p.CoreDNS.Disabled {
		all = append(all, addons.CoreDNS(p)...)
	}
	return all, nil
}
