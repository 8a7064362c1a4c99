package cloudconfig

import (
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_3/types"
)

// CNIPluginsVersion is the release of the standard CNI plugins that nodes download if their image has none.
const CNIPluginsVersion = "1.9.1"

const (
	defaultBinaryBaseURL = "https://dl.k8s.io"
	defaultCNIBaseURL    = "https://github.com/containernetworking/plugins/releases/download"
	// cniDirectory is where the container runtime looks for CNI plugins.
	cniDirectory = "/opt/cni/bin"
)

// CNIPlugins are the standard plugins that a node needs: those that the container runtime and the pod network of
// package addons call.
var CNIPlugins = []string{"bridge", "host-local", "loopback", "portmap"}

// binaries downloads what the image lacks: a kubelet, kubectl, the standard CNI plugins. It does nothing if the image
// has them.
func binaries(p Params) parts {
	const unit = "k8s-download@.service"
	environment := fmt.Sprintf("[Service]\nEnvironment=\"BASE_URL=%s\" VERSION=v%s \"PATH=%s\"\n",
		baseURL(p.Settings.BinaryBaseURL, defaultBinaryBaseURL), p.Versions.Kubernetes, searchPath)
	download := template(unit, asset("k8s-download@.service"))
	download.Dropins = []types.Dropin{{Name: "10-source.conf", Contents: new(environment)}}
	// A drop-in of an instance hides a drop-in of its template with the same name.
	plugins := types.Unit{Name: cniPluginsUnit, Dropins: []types.Dropin{{Name: "20-plugins.conf", Contents: new(cniPluginsDropin(p))}}}
	return parts{
		files: []file{{path: scriptDirectory + "/download", mode: modeExecutable, text: asset("download.sh")}},
		units: []types.Unit{download, plugins},
	}
}

const cniPluginsUnit = "k8s-download@cni-plugins.service"

// cniPluginsDropin names the source of the plugins. The unit runs after the plugins of the image are known.
func cniPluginsDropin(p Params) string {
	return fmt.Sprintf("[Unit]\nAfter=k8s-node-environment.service\n\n[Service]\nEnvironment=\"CNI_URL=%s\" CNI_VERSION=v%s CNI_DIRECTORY=%s \"CNI_PLUGINS=%s\"\n",
		baseURL(p.Settings.CNIPluginsBaseURL, defaultCNIBaseURL), CNIPluginsVersion, cniDirectory, strings.Join(CNIPlugins, " "))
}

// baseURL returns the configured URL or the default, escaped for a unit.
func baseURL(configured, fallback string) string {
	if configured == "" {
		configured = fallback
	}
	return unitText(strings.TrimRight(configured, "/"))
}

// unitText escapes what systemd would interpret as a specifier.
func unitText(s string) string { return strings.ReplaceAll(s, "%", "%%") }
