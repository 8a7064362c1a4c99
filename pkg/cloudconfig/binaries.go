package cloudconfig

import (
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_3/types"
)

// binaries downloads what the image lacks. Nothing happens when the image has the binary.
func binaries(p Params) parts {
	const unit = "k8s-download@.service"
	base := p.Settings.BinaryBaseURL
	if base == "" {
		base = "https://dl.k8s.io"
	}
	environment := fmt.Sprintf("[Service]\nEnvironment=\"BASE_URL=%s\" VERSION=v%s \"PATH=%s\"\n",
		unitText(strings.TrimRight(base, "/")), p.Versions.Kubernetes, searchPath)
	download := template(unit, asset("k8s-download@.service"))
	download.Dropins = []types.Dropin{{Name: "10-source.conf", Contents: new(environment)}}
	return parts{
		files: []file{{path: scriptDirectory + "/download", mode: modeExecutable, text: asset("download.sh")}},
		units: []types.Unit{download},
	}
}

// unitText escapes what systemd would take for a specifier.
func unitText(s string) string { return strings.ReplaceAll(s, "%", "%%") }
