package chart_test

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/helmchart"
)

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
	decode(t, text, &content)
	for path, v := range helmchart.Values(t, chart) {
		set, ok := helmchart.Lookup(content, strings.Split(path, "."))
		if !ok || reflect.DeepEqual(set, v.Default) && path != "networkPolicy.enabled" {
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
	for name, c := range map[string]struct{ values, message string }{
		"a value that does not exist":                {"replica: 2", "at '': additional properties 'replica' not allowed"},
		"a value that does not exist further down":   {"image: {repository: x}", "at '/image': additional properties 'repository' not allowed"},
		"the original's key that was never read":     {"proxy: {no_proxy: [.svc]}", "at '/proxy': additional properties 'no_proxy' not allowed"},
		"the original's other key of that kind":      {"ssh: {sshPublicKey: x}", "at '/ssh': additional properties 'sshPublicKey' not allowed"},
		"fewer operators than none":                  {"replicas: -1", "at '/replicas': minimum: got -1, want 0"},
		"a Lease of no time at all":                  {"leaderElection: {leaseDuration: 15}", "at '/leaderElection/leaseDuration': got number, want string"},
		"a number as text":                           {`replicas: "2"`, "at '/replicas': got string, want integer"},
		"a tag that YAML takes for a number":         {"image: {tag: 4.10}", "at '/image/tag': got number, want string"},
		"a registry with a scheme":                   {"image: {registry: https://docker.io}", "at '/image/registry': 'https://docker.io' does not match pattern"},
		"an unknown pull policy":                     {"image: {pullPolicy: never}", "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'"},
		"an operator that is root":                   {"pod: {user: {id: 0}}", "at '/pod/user/id': minimum: got 0, want 1"},
		"resources of an unknown kind":               {"resources: {memory: 1Gi}", "at '/resources': additional properties 'memory' not allowed"},
		"an annotation that is no text":              {"pod: {annotations: {a: true}}", "at '/pod/annotations/a': got boolean, want string"},
		"a switch as text":                           {`sharedHosts: "yes"`, "at '/sharedHosts': got string, want boolean"},
		"a controller that the chart does not run":   {"controllers: [kvmconfig, smolvm]", "at '/controllers/1': value must be one of 'kvmconfig', 'virtualmachine'"},
		"an operator without a controller":           {"controllers: []", "at '/smolvm/enabled': value must be true"},
		"a DNS server with a name":                   {"dns: {servers: [dns.example.org]}", "at '/dns/servers/0': 'dns.example.org' does not match pattern"},
		"text of DNS servers without comma":          {"dns: {servers: 10.0.0.2 10.0.0.3}", "at '/dns/servers': '10.0.0.2 10.0.0.3' does not match pattern"},
		"a pod network without length":               {"podCIDRs: [10.244.0.0]", "at '/podCIDRs/0': '10.244.0.0' does not match pattern"},
		"a mirror with a scheme":                     {"registry: {mirrors: [https://mirror]}", "at '/registry/mirrors/0': 'https://mirror' does not match pattern"},
		"the placeholder of the original as a token": {"registry: {dockerhub: {token: token}}", "at '/registry/dockerhub/token': 'token' does not match pattern"},
		"a pull secret that is encoded already":      {"registry: {pullSecret: {dockerConfigJSON: e30=}}", "at '/registry/pullSecret/dockerConfigJSON': 'e30=' does not match pattern"},
		"a proxy without a scheme":                   {"proxy: {http: proxy.example.org:3128}", "at '/proxy/http': 'proxy.example.org:3128' does not match pattern"},
		"a file instead of a public key":             {"ssh: {ssoPublicKey: ~/.ssh/id.pub}", "at '/ssh/ssoPublicKey': '~/.ssh/id.pub' does not match pattern"},
		"single sign-on without issuer":              {"oidc: {enabled: true, clientID: x}", "at '/oidc/issuerURL': minLength: got 0, want 1"},
		"an issuer without TLS":                      {"oidc: {issuerURL: http://dex}", "at '/oidc/issuerURL': 'http://dex' does not match pattern"},
		"SmolVMs that have no switch":                {"smolvm: {enable: true}", "at '/smolvm': additional properties 'enable' not allowed"},
		"no operator and no SmolVMs":                 {"controllers: []", "at '/smolvm/enabled': value must be true"},
		"SmolVMs as a controller of the operator":    {"controllers: [smolvm]", "at '/controllers/0': value must be one of 'kvmconfig', 'virtualmachine'"},
		"emulation as text":                          {`smolvm: {allowEmulation: "true"}`, "at '/smolvm/allowEmulation': got string, want boolean"},
		"a floor that does not exist":                {"smolvm: {egress: {floor: none}}", "at '/smolvm/egress/floor': value must be one of 'strict', 'metadata', 'off'"},
		"an allowed network without length":          {"smolvm: {egress: {allow: [10.20.0.0]}}", "at '/smolvm/egress/allow/0': '10.20.0.0' does not match pattern"},
		"an option in an allowed network":            {"smolvm: {egress: {allow: [10.20.0.0/16 --egress-floor=off]}}", "at '/smolvm/egress/allow/0': '10.20.0.0/16 --egress-floor=off' does not match pattern"},
		"a mirror of SmolVMs with a scheme":          {"smolvm: {registries: {mirrors: {docker.io: https://mirror}}}", "at '/smolvm/registries/mirrors/docker.io': 'https://mirror' does not match pattern"},
		"a registry with a space":                    {"smolvm: {registries: {insecure: ['a b']}}", "at '/smolvm/registries/insecure/0': 'a b' does not match pattern"},
		"the cgroup of everything":                   {"smolvm: {cgroupParent: /}", "at '/smolvm/cgroupParent': '/' does not match pattern"},
		"a cgroup elsewhere":                         {"smolvm: {cgroupParent: /smolvm/../kubepods}", "at '/smolvm/cgroupParent': '/smolvm/../kubepods' does not match pattern"},
		"a name to publish at":                       {"smolvm: {publishAddress: localhost}", "at '/smolvm/publishAddress': 'localhost' does not match pattern"},
		"an option in published ports":               {"smolvm: {publishPorts: '1-2 --egress-floor=off'}", "at '/smolvm/publishPorts': '1-2 --egress-floor=off' does not match pattern"},
		"no published ports":                         {"smolvm: {publishPorts: ''}", "at '/smolvm/publishPorts': '' does not match pattern"},
		"a policy for orphans that does not exist":   {"smolvm: {orphans: keep}", "at '/smolvm/orphans': value must be one of 'report', 'delete', 'none'"},
		"a request for disk":                         {"smolvm: {requests: {storage: 1Ti}}", "at '/smolvm/requests': additional properties 'storage' not allowed"},
		"a request for words":                        {"smolvm: {requests: {memory: much}}", "at '/smolvm/requests/memory': 'much' does not match pattern"},
		"an authority of no certificate":             {"smolvm: {tls: {caSecret: ca}}", "at '/smolvm/tls/secret': minLength: got 0, want 1"},
		"a Secret that cannot be":                    {"smolvm: {auth: {secret: Token}}", "at '/smolvm/auth/secret': 'Token' does not match pattern"},
		"fewer controllers than none":                {"smolvm: {replicas: -1}", "at '/smolvm/replicas': minimum: got -1, want 0"},
		"a role by pattern":                          {"rbac: {clusterRole: {general: '*'}}", "at '/rbac/clusterRole/general': '*' does not match pattern"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, err := run(t, "template", release, chart, "--kube-version="+kubernetes, "--values="+helmchart.Write(t, c.values))
			if err == nil || !strings.Contains(output, c.message) {
				t.Errorf("the answer (%v) is %q, want it to say %q", err, output, c.message)
			}
		})
	}
}

func TestOddValuesAreAccepted(t *testing.T) {
	for name, values := range map[string]string{
		"the original's lists as text":        `{dns: {servers: "10.0.0.2, 10.0.0.3"}, ntp: {servers: ""}, proxy: {noProxy: ".svc,10.0.0.0/8"}}`,
		"the addresses of IPv6":               `{dns: {servers: ["fd00::2"]}, podCIDRs: ["fd00::/48"], registry: {domain: "[fd00::1]:5000/k8s"}}`,
		"what a chart shares with its parts":  `{global: {anything: goes}}`,
		"no limits and a request for CPUs":    `{resources: {limits: null, requests: {cpu: 2}}}`,
		"a public key of a hardware token":    `{ssh: {ssoPublicKey: "sk-ssh-ed25519@openssh.com AAAAGnNr"}}`,
		"a node of which SmolVMs have a part": `{smolvm: {enabled: true, requests: {cpu: 1.5, memory: 4Gi}, egress: {allow: ["fd00::/48"]}, registries: {insecure: ["[fd00::1]:5000"]}}}`,
		"an IPv6 address for SmolVMs' ports":  `{smolvm: {enabled: true, publishAddress: "::", cgroupParent: /kvm-operator.slice/smolvm}}`,
		"the settings of no single sign-on":   `{oidc: {enabled: false, clientID: "", issuerURL: ""}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			render(t, "--values="+helmchart.Write(t, values))
		})
	}
}
