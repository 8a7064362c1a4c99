package cloudconfig

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_3/types"
)

const (
	defaultRegistry = "registry.k8s.io"
	dockerHub       = "docker.io"
	// pauseTag is the tag of the sandbox image in kubeadm 1.34 to 1.36.
	pauseTag = "3.10.1"
	// runtimeSocket is where containerd serves the CRI.
	runtimeSocket = "unix:///run/containerd/containerd.sock"
)

func (s Settings) registry() string {
	if s.RegistryDomain == "" {
		return defaultRegistry
	}
	return s.RegistryDomain
}

// registryHost returns the registry without its path.
func (s Settings) registryHost() string {
	host, _, _ := strings.Cut(s.registry(), "/")
	return host
}

// image returns the reference of an image of the node.
func image(s Settings, name, tag string) string { return s.registry() + "/" + name + ":" + tag }

// containerd is the container runtime: its configuration, mirrors and credentials.
func containerd(p Params) parts {
	config := fmt.Sprintf(containerdConfig, image(p.Settings, "pause", pauseTag), cniDirectory)
	crictl := "runtime-endpoint: " + runtimeSocket + "\nimage-endpoint: " + runtimeSocket + "\n"
	all := parts{
		files: []file{
			{path: "/etc/containerd/config.toml", mode: modePublic, text: config},
			{path: "/etc/crictl.yaml", mode: modePublic, text: crictl},
		},
		units: []types.Unit{dropin("containerd.service", containerdDropin)},
	}
	if len(p.Settings.RegistryMirrors) > 0 {
		all.files = append(all.files, mirrors(p.Settings))
	}
	if p.Settings.DockerhubToken != "" {
		all.files = append(all.files, credentials(p.Settings))
	}
	return all
}

// containerdConfig has version 2, which containerd 1.6 and 1.7 use and 2.x converts.
const containerdConfig = `version = 2

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "%s"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "%s"
conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true

[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "/etc/containerd/certs.d"
`

// containerdDropin names the configuration for Flatcar, whose unit reads another one, and keeps images off the root
// disk.
const containerdDropin = `[Unit]
RequiresMountsFor=/var/lib/containerd

[Service]
Environment=CONTAINERD_CONFIG=/etc/containerd/config.toml
EnvironmentFile=-/etc/kvm-operator/proxy.env
Restart=always
RestartSec=5
`

// mirrors makes containerd try the mirrors of the registry, in their order, before the registry itself. Other
// registries have no mirror, because a mirror of one registry may have another image under the same name than a second
// registry has.
func mirrors(s Settings) file {
	host := s.registryHost()
	server := host
	if host == dockerHub {
		server = "registry-1.docker.io"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "server = \"https://%s\"\n", server)
	for _, mirror := range s.RegistryMirrors {
		fmt.Fprintf(&b, "\n[host.\"https://%s\"]\ncapabilities = [\"pull\", \"resolve\"]\n", mirror)
	}
	return file{path: "/etc/containerd/certs.d/" + host + "/hosts.toml", mode: modePublic, text: b.String()}
}

// credentials is read by the kubelet, which passes them to containerd with each pull. containerd's own setting for them
// is deprecated and would make its whole configuration secret. The pause image is pulled without them.
func credentials(s Settings) file {
	name := s.registryHost()
	if name == defaultRegistry || name == dockerHub {
		name = "https://index.docker.io/v1/"
	}
	config, _ := json.Marshal(map[string]any{"auths": map[string]any{name: map[string]string{"auth": s.DockerhubToken}}})
	return file{path: "/root/.docker/config.json", mode: modeSecret, private: true, text: string(config) + "\n"}
}
