package cloudconfig

import (
	"slices"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// proxyFile contains the variables for containerd, the kubelet and downloads. Units read it if it exists.
const proxyFile = "/etc/kvm-operator/proxy.env"

// variable is an environment variable.
type variable struct{ name, value string }

// proxy tells the node's services which proxy to use. The URLs may contain a password.
func proxy(p Params) parts {
	if !p.Settings.Proxy.isSet() {
		return parts{}
	}
	var b strings.Builder
	for _, v := range proxyVariables(p) {
		b.WriteString(v.name + "=" + v.value + "\n")
	}
	return parts{files: []file{{path: proxyFile, mode: modeSecret, private: true, text: b.String()}}}
}

// proxyVariables returns both spellings, because curl and wget read only the lower-case one.
func proxyVariables(p Params) []variable {
	settings := p.Settings.Proxy
	var all []variable
	for _, v := range []variable{{"HTTP_PROXY", settings.HTTP}, {"HTTPS_PROXY", settings.HTTPS}, {"NO_PROXY", noProxy(p)}} {
		if v.value != "" {
			all = append(all, v, variable{strings.ToLower(v.name), v.value})
		}
	}
	return all
}

// noProxy returns the operator's list and what belongs to the cluster itself.
func noProxy(p Params) string {
	k := p.Cluster.Kubernetes
	list := append(slices.Clone(p.Settings.Proxy.NoProxy),
		"localhost", "127.0.0.1", "::1", ".svc", "."+k.Domain,
		k.API.ClusterIPRange, key.PodNetwork(p.Cluster), k.API.Domain)
	list = append(list, p.apiServerHost())
	var unique []string
	for _, entry := range list {
		if entry = strings.TrimSpace(entry); entry != "" && !slices.Contains(unique, entry) {
			unique = append(unique, entry)
		}
	}
	return strings.Join(unique, ",")
}
