package addons_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
)

// files returns the content of the one ConfigMap among the objects.
func files(t *testing.T, objects []client.Object) map[string]string {
	t.Helper()
	for _, object := range objects {
		if config, ok := object.(*corev1.ConfigMap); ok {
			return config.Data
		}
	}
	t.Fatal("there is no ConfigMap")
	return nil
}

// TestKubeProxyReadsItsConfiguration: the real kube-proxy prints what it has parsed. An unknown field would stop it.
func TestKubeProxyReadsItsConfiguration(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: it needs the kube-proxy of make tools")
	}
	tool, err := filepath.Abs("../../../.tools/kube-proxy")
	if err != nil {
		t.Fatal(err)
	}
	config := files(t, split(t, params(everything))["kube-proxy"])
	read, understood := filepath.Join(t.TempDir(), "read"), filepath.Join(t.TempDir(), "understood")
	if err := os.WriteFile(read, []byte(config["config.conf"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command(tool, "--config="+read, "--write-config-to="+understood).CombinedOutput(); err != nil {
		t.Fatalf("kube-proxy (make tools) ends: %s\n%s", err, output)
	}
	text, err := os.ReadFile(understood)
	if err != nil {
		t.Fatal(err)
	}
	var got, want struct {
		BindAddress, HealthzBindAddress, MetricsBindAddress, ClusterCIDR, Mode string
		ClientConnection                                                       struct{ Kubeconfig string }
		Conntrack                                                              struct{ MaxPerCore int }
	}
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want.BindAddress, want.HealthzBindAddress, want.MetricsBindAddress = "0.0.0.0", "0.0.0.0:10256", "127.0.0.1:10249"
	want.ClusterCIDR, want.Mode, want.Conntrack.MaxPerCore = "10.1.0.0/20", "nftables", 32768
	want.ClientConnection.Kubeconfig = "/var/lib/kube-proxy/kubeconfig.conf"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kube-proxy understands something else (-want +got):\n%s", diff)
	}
}

// TestKubeProxyFindsTheAPIServer by the token and the CA of its account.
func TestKubeProxyFindsTheAPIServer(t *testing.T) {
	config, err := clientcmd.Load([]byte(files(t, split(t, params())["kube-proxy"])["kubeconfig.conf"]))
	if err != nil {
		t.Fatal(err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil || config.AuthInfos[current.AuthInfo] == nil {
		t.Fatalf("the current context %q leads nowhere", config.CurrentContext)
	}
	cluster, user := config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	want := []string{
		"https://master.abc12.svc.cluster.local:443", "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", "/var/run/secrets/kubernetes.io/serviceaccount/token",
	}
	if diff := cmp.Diff(want, []string{cluster.Server, cluster.CertificateAuthority, user.TokenFile}); diff != "" {
		t.Errorf("another way to the API server (-want +got):\n%s", diff)
	}
}

// TestConfigurationsOfFlannelAreJSON, with and without everything that can be set.
func TestConfigurationsOfFlannelAreJSON(t *testing.T) {
	for _, p := range []addons.Params{params(), params(everything)} {
		for name, text := range files(t, split(t, p)["flannel"]) {
			if !json.Valid([]byte(text)) || !strings.HasSuffix(name, ".json") {
				t.Errorf("%s is no JSON:\n%s", name, text)
			}
		}
	}
}

// TestTheGuestImageCarriesTheImages of the add-ons by the names that these use, so that no download is needed. That of
// kube-proxy has the version of Kubernetes, so it is not in the list.
func TestTheGuestImageCarriesTheImages(t *testing.T) {
	list, err := os.ReadFile("../../../integration/images/addons/images")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			listed[fields[0]] = true
		}
	}
	asked := regexp.MustCompile(`(?m)^ *(?:- )?image: (.*)$`)
	found := 0
	for _, addon := range []string{"coredns", "flannel"} {
		for _, image := range asked.FindAllStringSubmatch(text(t, split(t, params())[addon]), -1) {
			found++
			if !listed[image[1]] {
				t.Errorf("integration/images/addons/images does not have %s, which %s asks for", image[1], addon)
			}
		}
	}
	if found != 4 {
		t.Errorf("%d images are asked for", found)
	}
}
