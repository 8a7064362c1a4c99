package cloudconfig

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMirrorsAreAskedInOrder covers no mirror, one and several.
func TestMirrorsAreAskedInOrder(t *testing.T) {
	for name, test := range map[string]struct {
		registry string
		mirrors  []string
		path     string
		want     string
	}{
		"none": {path: "/etc/containerd/certs.d/registry.k8s.io/hosts.toml"},
		"one": {
			mirrors: []string{"a.example.com"}, path: "/etc/containerd/certs.d/registry.k8s.io/hosts.toml",
			want: "server = \"https://registry.k8s.io\"\n\n[host.\"https://a.example.com\"]\ncapabilities = [\"pull\", \"resolve\"]\n",
		},
		"several, with ports, for a registry with a path": {
			registry: "registry.example.com:8443/kubernetes", mirrors: []string{"b.example.com:5000", "10.0.0.7:5000", "[fd00::7]:5000"},
			path: "/etc/containerd/certs.d/registry.example.com:8443/hosts.toml",
			want: "server = \"https://registry.example.com:8443\"\n" +
				"\n[host.\"https://b.example.com:5000\"]\ncapabilities = [\"pull\", \"resolve\"]\n" +
				"\n[host.\"https://10.0.0.7:5000\"]\ncapabilities = [\"pull\", \"resolve\"]\n" +
				"\n[host.\"https://[fd00::7]:5000\"]\ncapabilities = [\"pull\", \"resolve\"]\n",
		},
		"of Docker Hub, which answers under another name": {
			registry: "docker.io/giantswarm", mirrors: []string{"a.example.com"}, path: "/etc/containerd/certs.d/docker.io/hosts.toml",
			want: "server = \"https://registry-1.docker.io\"\n\n[host.\"https://a.example.com\"]\ncapabilities = [\"pull\", \"resolve\"]\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := workerParams()
			p.Settings.RegistryDomain, p.Settings.RegistryMirrors = test.registry, test.mirrors
			data := mustRender(t, p)
			got := ""
			if hasFile(data.Public, test.path) {
				got = fileContent(t, data, test.path)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.path, diff)
			}
		})
	}
}

func TestCredentialsAreForOneRegistry(t *testing.T) {
	for registry, want := range map[string]string{
		"":                                     "https://index.docker.io/v1/",
		"registry.k8s.io":                      "https://index.docker.io/v1/",
		"docker.io/giantswarm":                 "https://index.docker.io/v1/",
		"registry.example.com:8443/kubernetes": "registry.example.com:8443",
	} {
		p := workerParams()
		p.Settings.RegistryDomain, p.Settings.DockerhubToken = registry, testDockerhub
		var got struct {
			Auths map[string]struct{ Auth string }
		}
		if err := json.Unmarshal([]byte(fileContent(t, mustRender(t, p), "/root/.docker/config.json")), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Auths) != 1 || got.Auths[want].Auth != testDockerhub {
			t.Errorf("credentials for registry %q are %v, want those of %s", registry, got.Auths, want)
		}
	}
}
