package chart_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// value is a value of values.yaml that is set as a whole.
type value struct {
	description string
	standard    any
}

var (
	comment = regexp.MustCompile(`^ *# -- (.*)$`)
	keyLine = regexp.MustCompile(`^( *)([A-Za-z]+):`)
)

// documented reads the values with their descriptions, as helm-docs does: the comment above a key, after "# --".
func documented(t *testing.T) map[string]value {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]any{}
	decode(t, text, &content)
	values := map[string]value{}
	var path []string
	description := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if found := comment.FindStringSubmatch(line); found != nil {
			description = found[1]
			continue
		}
		found := keyLine.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		path = append(path[:len(found[1])/2], found[2])
		if description != "" {
			standard, _ := lookup(content, path)
			values[strings.Join(path, ".")] = value{description, standard}
		}
		description = ""
	}
	return values
}

func lookup(content map[string]any, path []string) (any, bool) {
	found, ok := content[path[0]]
	inner, nested := found.(map[string]any)
	if !ok || len(path) == 1 {
		return found, ok
	}
	if !nested {
		return nil, false
	}
	return lookup(inner, path[1:])
}

// schema is the part of a JSON schema that tests examine.
type schema struct {
	Description          string
	Properties           map[string]schema
	AdditionalProperties any
}

// described collects the values of a schema with their descriptions.
func (s schema) described(t *testing.T, path string, into map[string]string) {
	if s.Description != "" {
		into[path] = s.Description
		return
	}
	if s.AdditionalProperties != false {
		t.Errorf("the schema lets anything into %q", path)
	}
	for name, property := range s.Properties {
		property.described(t, strings.TrimPrefix(path+"."+name, "."), into)
	}
}

func TestEveryValueIsInTheSchemaWithItsDescription(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var root schema
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	got, want := map[string]string{}, map[string]string{}
	root.described(t, "", got)
	delete(got, "global") // belongs to Helm
	for path, v := range documented(t) {
		want[path] = v.description
	}
	if len(want) < 40 {
		t.Fatalf("the test sees the values %v only", slices.Sorted(maps.Keys(want)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
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
	for path, v := range documented(t) {
		set, ok := lookup(content, strings.Split(path, "."))
		if !ok || reflect.DeepEqual(set, v.standard) && path != "networkPolicy.enabled" {
			t.Errorf("%s sets %s to %v, want another value than the default", full, path, set)
		}
	}
}

// TestReadmeIsThatOfTheValues: the README is the output of `make helm-docs`. UPDATE=1 writes it.
func TestReadmeIsThatOfTheValues(t *testing.T) {
	template, err := os.ReadFile(filepath.Join(chart, "README.md.gotmpl"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(chart, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(template), "-}}\n")
	want := strings.NewReplacer(
		`{{ template "chart.description" . }}`, description(t),
		`{{ template "chart.valuesSection" . }}`, table(t),
	).Replace(body)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(filepath.Join(chart, "README.md"), []byte(strings.TrimSpace(want)+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(string(readme))); diff != "" {
		t.Errorf("README.md is outdated, run make helm-docs (-want +got):\n%s", diff)
	}
}

func description(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c struct{ Description string }
	decode(t, text, &c)
	return c.Description
}

// table returns the table of values of helm-docs.
func table(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("## Values\n\n| Key | Type | Default | Description |\n|-----|------|---------|-------------|\n")
	values := documented(t)
	for _, path := range slices.Sorted(maps.Keys(values)) {
		var standard bytes.Buffer
		encoder := json.NewEncoder(&standard)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(values[path].standard); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s |\n", path, typeName(values[path].standard), strings.TrimSpace(standard.String()), values[path].description)
	}
	return b.String()
}

func typeName(standard any) string {
	switch standard.(type) {
	case bool:
		return "bool"
	case float64:
		return "int"
	case string:
		return "string"
	case []any:
		return "list"
	default:
		return "object"
	}
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
			output, err := run(t, "template", release, chart, "--kube-version="+kubernetes, "--values="+write(t, c.values))
			if err == nil || !strings.Contains(output, c.message) {
				t.Errorf("the answer (%v) is %q, want it to say %q", err, output, c.message)
			}
		})
	}
}

func TestOddValuesAreAccepted(t *testing.T) {
	for name, values := range map[string]string{
		"the original's lists as text":             `{dns: {servers: "10.0.0.2, 10.0.0.3"}, ntp: {servers: ""}, proxy: {noProxy: ".svc,10.0.0.0/8"}}`,
		"the addresses of IPv6":                    `{dns: {servers: ["fd00::2"]}, podCIDRs: ["fd00::/48"], registry: {domain: "[fd00::1]:5000/k8s"}}`,
		"what a chart shares with its parts":       `{global: {anything: goes}}`,
		"limits taken back and a request for CPUs": `{resources: {limits: null, requests: {cpu: 2}}}`,
		"a public key of a hardware token":         `{ssh: {ssoPublicKey: "sk-ssh-ed25519@openssh.com AAAAGnNr"}}`,
		"a node of which SmolVMs have a part":      `{smolvm: {enabled: true, requests: {cpu: 1.5, memory: 4Gi}, egress: {allow: ["fd00::/48"]}, registries: {insecure: ["[fd00::1]:5000"]}}}`,
		"an IPv6 address for SmolVMs' ports":       `{smolvm: {enabled: true, publishAddress: "::", cgroupParent: /kvm-operator.slice/smolvm}}`,
		"the settings of no single sign-on":        `{oidc: {enabled: false, clientID: "", issuerURL: ""}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			render(t, "--values="+write(t, values))
		})
	}
}

// write creates a file of values.
func write(t *testing.T, values string) string {
	t.Helper()
	if err := yaml.Unmarshal([]byte(values), &map[string]any{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
