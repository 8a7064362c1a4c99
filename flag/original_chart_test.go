package flag_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/kvm-operator/kvm-operator/flag"
)

// These are the files that the original operator's chart mounts: config.yml of its ConfigMap, the other two of its
// Secret. SPELLING is "workload" in the v4 line and "tenant" in v3.
const (
	originalConfig = `
server:
  enable:
    debug:
      server: true
  listen:
    address: 'http://0.0.0.0:8000'
service:
  installation:
    dns:
      servers: '10.0.0.2,10.0.0.3'
    ntp:
      servers: ''
    SPELLING:
      kubernetes:
        api:
          auth:
            provider:
              oidc:
                clientID: 'kubernetes'
                issuerURL: 'https://dex.example.org'
                usernameClaim: 'email'
                usernamePrefix: 'oidc:'
                groupsClaim: 'groups'
                groupsPrefix: ''
  kubernetes:
    inCluster: true
  rbac:
    clusterRole:
      general: 'kvm-operator-3-18-6'
      psp: 'kvm-operator-3-18-6-psp'
  registry:
    domain: 'docker.io'
    mirrors:
    - 'mirror.example.org'
    - 'second.example.org:5000'
  SPELLING:
    ignition:
      path: '/opt/ignition'
    proxy:
      noProxy: '10.0.0.0/8,.svc'
    ssh:
      ssoPublicKey: 'ssh-rsa AAAA sso'
  terminateUnhealthyNodes: false
`
	originalDockerhub = `
service:
  registry:
    dockerhubToken: 'dXNlcjpwYXNzd29yZA=='
`
	originalProxy = `
service:
  SPELLING:
    proxy:
      http: 'http://proxy.example.org:3128'
      https: 'http://proxy.example.org:3128'
`
)

// TestOriginalChartStillLoads: the command line and the files of the original operator's chart are read unchanged. This
// test does not check what a value means. For example, the original appended /giantswarm to the registry.domain
// docker.io; this operator rejects that value with a sentence when it starts (pkg/cluster/cloudconfig).
func TestOriginalChartStillLoads(t *testing.T) {
	const oidc = "service.installation.workload.kubernetes.api.auth.provider.oidc."
	want := map[string]string{
		"server.enable.debug.server":        "true",
		"server.listen.address":             "http://0.0.0.0:8000",
		"service.installation.dns.servers":  "[10.0.0.2,10.0.0.3]",
		oidc + "clientid":                   "kubernetes",
		oidc + "issuerurl":                  "https://dex.example.org",
		oidc + "usernameclaim":              "email",
		oidc + "usernameprefix":             "oidc:",
		oidc + "groupsclaim":                "groups",
		"service.kubernetes.incluster":      "true",
		"service.rbac.clusterrole.general":  "kvm-operator-3-18-6",
		"service.rbac.clusterrole.psp":      "kvm-operator-3-18-6-psp",
		"service.registry.domain":           "docker.io",
		"service.registry.mirrors":          "[mirror.example.org,second.example.org:5000]",
		"service.registry.dockerhubtoken":   "dXNlcjpwYXNzd29yZA==",
		"service.workload.ignition.path":    "/opt/ignition",
		"service.workload.proxy.noproxy":    "[10.0.0.0/8,.svc]",
		"service.workload.proxy.http":       "http://proxy.example.org:3128",
		"service.workload.proxy.https":      "http://proxy.example.org:3128",
		"service.workload.ssh.ssopublickey": "ssh-rsa AAAA sso",
	}
	for _, spelling := range []string{"workload", "tenant"} {
		t.Run(spelling, func(t *testing.T) {
			files := map[string]string{
				"a/config.yml": originalConfig, "b/dockerhub-secret.yml": originalDockerhub, "b/proxy.yml": originalProxy,
			}
			for name := range files {
				files[name] = strings.ReplaceAll(files[name], "SPELLING", spelling)
			}
			fs, _ := setup(t, files, "--config.files=config,dockerhub-secret,proxy")
			if err := flag.Load(fs, environment(nil)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, notDefault(fs)); diff != "" {
				t.Errorf("other settings (-want +got):\n%s", diff)
			}
		})
	}
}

// notDefault returns the settings whose value differs from the default, except where the files are.
func notDefault(fs *pflag.FlagSet) map[string]string {
	changed := map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Value.String() != f.DefValue && !strings.HasPrefix(f.Name, "config.") {
			changed[f.Name] = f.Value.String()
		}
	})
	return changed
}

// TestEveryFlagOfTheOriginalIsAccepted ensures that command lines of the original operator's users keep working.
func TestEveryFlagOfTheOriginalIsAccepted(t *testing.T) {
	const oidc = "kubernetes.api.auth.provider.oidc."
	text := []string{
		"config.dirs", "config.files", "server.listen.address", "server.listen.metricsaddress",
		"server.tls.cafile", "server.tls.crtfile", "server.tls.keyfile",
		"service.kubernetes.address", "service.kubernetes.kubeconfig",
		"service.kubernetes.tls.cafile", "service.kubernetes.tls.crtfile", "service.kubernetes.tls.keyfile",
		"service.installation.dns.servers", "service.installation.ntp.servers",
		"service.rbac.clusterrole.general", "service.rbac.clusterrole.psp",
		"service.registry.domain", "service.registry.mirrors", "service.registry.dockerhubtoken", "service.crd.labelselector",
	}
	for _, spelling := range []string{"workload", "tenant"} {
		for _, key := range []string{"ignition.path", "proxy.http", "proxy.https", "proxy.noproxy", "ssh.ssopublickey"} {
			text = append(text, "service."+spelling+"."+key)
		}
		for _, key := range []string{"clientid", "issuerurl", "usernameclaim", "usernameprefix", "groupsclaim", "groupsprefix"} {
			text = append(text, "service.installation."+spelling+"."+oidc+key)
		}
	}
	yes := []string{
		"server.enable.debug.server", "server.log.access", "service.kubernetes.incluster", "service.terminateunhealthynodes",
		"service.tenant.update.enabled", "service.workload.update.enabled",
	}
	arguments := map[string]string{}
	for _, key := range text {
		arguments[key] = "value"
	}
	for _, key := range yes {
		arguments[key] = "true"
	}
	for _, key := range slices.Sorted(maps.Keys(arguments)) {
		t.Run(key, func(t *testing.T) {
			fs := pflag.NewFlagSet("daemon", pflag.ContinueOnError)
			flag.Register(fs, "runner:1", "vm-runner:1")
			if err := fs.Parse([]string{"--" + key + "=" + arguments[key]}); err != nil {
				t.Fatal(err)
			}
			got := strings.Trim(fs.Lookup(key).Value.String(), "[]")
			if diff := cmp.Diff(arguments[key], got); diff != "" {
				t.Errorf("another value (-want +got):\n%s", diff)
			}
		})
	}
}
