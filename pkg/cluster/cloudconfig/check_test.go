package cloudconfig

import (
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// Each case is an input that must be rejected with an error that names what is wrong.
var refused = map[string]struct {
	change func(*Params)
	want   string
}{
	"no role":                        {func(p *Params) { p.Node.Role = "etcd" }, `role "etcd"`},
	"a node id that is no DNS label": {func(p *Params) { p.Node.ID = "A b" }, `node id "A b"`},
	"a version with v":               {func(p *Params) { p.Versions.Kubernetes = "v1.35.4" }, `"v1.35.4"`},
	"a version that is no tag":       {func(p *Params) { p.Versions.Kubernetes = "1.35.4+k3s1" }, `"1.35.4+k3s1"`},
	"no version of etcd":             {func(p *Params) { p.Versions.Etcd = "" }, "version of etcd"},
	"no API certificate":             {func(p *Params) { delete(p.Certificates, pki.API) }, `key pair "api"`},
	"no key of the scheduler":        {func(p *Params) { p.Certificates[pki.Scheduler] = pki.KeyPair{Certificate: []byte("x")} }, `"scheduler" has no private key`},
	"no encryption key":              {func(p *Params) { p.EncryptionKey = "" }, "encryption key"},
	"an encryption key of 16 bytes":  {func(p *Params) { p.EncryptionKey = "MDEyMzQ1Njc4OWFiY2RlZg==" }, "encryption key"},
	"a malformed bootstrap token":    {func(p *Params) { p.BootstrapToken = "short" }, "bootstrap token"},
	"no member of its own":           {func(p *Params) { p.EtcdMembers = testMembers("m1bbb") }, "etcd-m0aaa"},
	"a member twice":                 {func(p *Params) { p.EtcdMembers = testMembers("m0aaa", "m0aaa") }, "etcd-m0aaa is listed twice"},
	"a peer without TLS":             {func(p *Params) { p.EtcdMembers[0].PeerURL = "http://a:2380" }, "http://a:2380"},
	"a state of etcd":                {func(p *Params) { p.EtcdState = "restored" }, `"restored"`},
	"a token of etcd":                {func(p *Params) { p.EtcdFoundingToken = "a b" }, `"a b"`},
	"a key prefix with a space":      {func(p *Params) { p.Cluster.Etcd.Prefix = "a b" }, `"a b"`},
	"a service network":              {func(p *Params) { p.Cluster.Kubernetes.API.ClusterIPRange = "172.31.0.0" }, "172.31.0.0"},
	"a pod network":                  {func(p *Params) { p.Cluster.Calico.CIDR = 31 }, "192.168.0.0/31"},
	"no DNS address":                 {func(p *Params) { p.Cluster.Kubernetes.DNS.IP = "" }, "dns.ip"},
	"a domain with a newline":        {func(p *Params) { p.Cluster.Kubernetes.Domain = "cluster.local\nx: y" }, "kubernetes.domain"},
	"a port":                         {func(p *Params) { p.Cluster.Kubernetes.API.SecurePort = 0 }, "securePort"},

	"a label that kubelets may not set":  {func(p *Params) { p.Node.Labels = "node-role.kubernetes.io/master=" }, "node-role.kubernetes.io/master"},
	"a label of the operator":            {func(p *Params) { p.Node.Labels = "role=worker" }, "label role"},
	"a label with a space":               {func(p *Params) { p.Node.Labels = "a b=c" }, `"a b"`},
	"a label with a value with a dollar": {func(p *Params) { p.Node.Labels = "a=${HOME}" }, "${HOME}"},
	"a label with a line break":          {func(p *Params) { p.Node.Labels = "a=b\n[Service]" }, "label"},

	"a user twice":                  {users("ada", "ada"), `"ada" is listed twice`},
	"the original's built-in user":  {users("giantswarm"), `"giantswarm"`},
	"root":                          {users("root"), `"root"`},
	"a user of systemd":             {users("systemd-network"), `"systemd-network"`},
	"a user that begins with a dot": {users(".ada"), `".ada"`},
	"a user with a line break":      {users("ada\nroot"), "ssh user"},
	"a user without a name":         {users(""), `""`},
	"a user with a long name":       {users(strings.Repeat("a", 33)), "aaa"},
	"a key of two lines":            {userKey(testPublicKey + "\n" + testPublicKey), `"ada"`},
	"a private key as a public one": {userKey("-----BEGIN OPENSSH PRIVATE KEY-----"), `"ada"`},

	"an empty mount tag":         {tags(""), `""`},
	"a mount tag twice":          {tags("a", "a"), `"a" is used twice`},
	"etcd's mount tag":           {tags(EtcdMountTag), EtcdMountTag},
	"a mount tag with a slash":   {tags("../etc"), "../etc"},
	"a mount tag with a percent": {tags("a%n"), "a%n"},
	"a long mount tag":           {tags(strings.Repeat("a", 32)), "aaa"},

	"a mirror with a scheme":      {func(p *Params) { p.Settings.RegistryMirrors = []string{"https://a.example.com"} }, "https://a.example.com"},
	"a mirror with a path":        {func(p *Params) { p.Settings.RegistryMirrors = []string{"a.example.com/x"} }, "a.example.com/x"},
	"a mirror with a quote":       {func(p *Params) { p.Settings.RegistryMirrors = []string{`a"]`} }, "mirror"},
	"an empty mirror":             {func(p *Params) { p.Settings.RegistryMirrors = []string{""} }, "mirror"},
	"a registry with a scheme":    {func(p *Params) { p.Settings.RegistryDomain = "https://registry.k8s.io" }, "registry domain"},
	"a registry that ends in /":   {func(p *Params) { p.Settings.RegistryDomain = "registry.k8s.io/" }, "registry domain"},
	"a raw registry token":        {func(p *Params) { p.Settings.DockerhubToken = "dckr_pat_hunter2" }, "registry token"},
	"a proxy without scheme":      {func(p *Params) { p.Settings.Proxy.HTTP = "guest:hunter2@proxy:3128" }, "HTTP proxy"},
	"a proxy with a line break":   {func(p *Params) { p.Settings.Proxy.HTTPS = "http://proxy:3128\nLD_PRELOAD=x" }, "HTTPS proxy"},
	"an exception with a comma":   {func(p *Params) { p.Settings.Proxy.NoProxy = []string{"a,b"} }, "no-proxy"},
	"a time server with a blank":  {func(p *Params) { p.Settings.NTPServers = []string{"a b"} }, "NTP"},
	"an authority of two lines":   {func(p *Params) { p.Settings.SSOPublicKey = testPublicKey + "\n" }, "SSH sign-on"},
	"binaries from a file":        {func(p *Params) { p.Settings.BinaryBaseURL = "file:///tmp" }, "file:///tmp"},
	"CNI plugins from a file":     {func(p *Params) { p.Settings.CNIPluginsBaseURL = "file:///cni" }, "file:///cni"},
	"sign-on without client":      {func(p *Params) { p.Settings.OIDC.IssuerURL = "https://dex" }, "client"},
	"sign-on without TLS":         {func(p *Params) { p.Settings.OIDC = v1alpha1.OIDC{IssuerURL: "http://dex", ClientID: "k"} }, "http://dex"},
	"a cluster's sign-on in part": {func(p *Params) { p.Cluster.Kubernetes.API.OIDC = &v1alpha1.OIDC{ClientID: "k"} }, "kubernetes.api.oidc"},
}

func users(names ...string) func(*Params) {
	return func(p *Params) {
		for _, name := range names {
			p.Cluster.Kubernetes.SSH.UserList = append(p.Cluster.Kubernetes.SSH.UserList, v1alpha1.SSHUser{Name: name})
		}
	}
}

func userKey(text string) func(*Params) {
	return func(p *Params) {
		p.Cluster.Kubernetes.SSH.UserList = []v1alpha1.SSHUser{{Name: "ada", PublicKey: text}}
	}
}

func tags(all ...string) func(*Params) { return func(p *Params) { p.Node.MountTags = all } }

func TestRenderRefuses(t *testing.T) {
	for name, test := range refused {
		t.Run(name, func(t *testing.T) {
			p := masterParams()
			test.change(&p)
			_, err := Render(p)
			if err == nil {
				t.Fatal("it was rendered")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q does not say %q", err, test.want)
			}
			for _, secret := range []string{"hunter2", "0123456789abcdef", testEncryptionKey} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("error %q tells a secret", err)
				}
			}
		})
	}
}

func TestAnErrorIsTheSameEachTime(t *testing.T) {
	p := Params{Settings: Settings{RegistryDomain: "/"}}
	_, first := Render(p)
	for range 20 {
		if _, again := Render(p); again.Error() != first.Error() {
			t.Fatalf("one input, two errors:\n%s\n%s", first, again)
		}
	}
}

func TestRenderAccepts(t *testing.T) {
	for name, change := range map[string]func(*Params){
		"labels with blanks and an empty entry": func(p *Params) { p.Node.Labels = " a=b , , c.d/e=f," },
		"a label without value":                 func(p *Params) { p.Node.Labels = "node.kubernetes.io/special" },
		"labels that kubelets may set":          func(p *Params) { p.Node.Labels = "topology.kubernetes.io/zone=a,x.kubelet.kubernetes.io/y=z" },
		"no labels":                             func(p *Params) { p.Node.Labels = "" },
		"a mount tag that systemd escapes":      tags("a-b_c.d"),
		"a user without key":                    users("grace"),
		"users as the CRD allows them":          users("Grace.H_1", "jane.doe", "Ada", "_svc"),
		"a key with a line break at the end":    userKey(testPublicKey + "\n"),
		"a security key":                        userKey("sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29t ada@laptop"),
		"a mirror with an IPv6 address":         func(p *Params) { p.Settings.RegistryMirrors = []string{"[fd00::1]:5000"} },
		"no key prefix":                         func(p *Params) { p.Cluster.Etcd.Prefix = "" },
		"an IPv6 cluster's services": func(p *Params) {
			p.Cluster.Kubernetes.API.ClusterIPRange, p.Cluster.Kubernetes.DNS.IP = "fd00::/108", "fd00::a"
		},
		"a member that joins": func(p *Params) {
			p.EtcdState, p.EtcdMembers = EtcdExisting, testMembers("m0aaa", "m1bbb")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := masterParams()
			change(&p)
			mustRender(t, p)
		})
	}
}

func TestSettingsWithoutAnyValueAreValid(t *testing.T) {
	if err := (Settings{}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestNodeNetworksFitIntoThePodNetwork(t *testing.T) {
	for bits, want := range map[int32]struct{ mask, pods int32 }{
		8: {24, 110}, 16: {24, 110}, 20: {24, 110}, 22: {26, 71}, 24: {28, 23}, 26: {30, 11}, 30: {30, 11},
	} {
		c := v1alpha1.Calico{Subnet: "10.0.0.0", CIDR: bits}
		if mask, pods := nodeMask(c), maxPods(c); mask != want.mask || pods != want.pods {
			t.Errorf("/%d: nodes get /%d and %d pods, want /%d and %d", bits, mask, pods, want.mask, want.pods)
		}
	}
}
