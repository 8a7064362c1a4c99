package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kvm-operator/kvm-operator/flag"
)

// freeSettings are the settings that accept every value of their type, each with the reason.
var freeSettings = map[string]string{
	flag.ConfigDirs:              "a directory without a file is noticed by config.files, which finds none",
	flag.ConfigFiles:             "a file that is missing or malformed is refused when it is read",
	flag.ServerEnableDebugServer: "yes or no",
	flag.ServerLogAccess:         "yes or no",
	flag.ServerTLSCAFile:         "ignored",
	flag.KubernetesInCluster:     "yes or no",
	flag.LeaderElectionEnabled:   "yes or no",
	flag.EgressRestricted:        "yes or no",
	flag.MachineForeignSources:   "yes or no",
	flag.MachineAllowEmulation:   "yes or no",
	flag.MachineNested:           "yes or no",
	flag.InstallationSharedHosts: "yes or no",
	flag.SmolVMPullSecrets:       "yes or no",
	flag.TerminateUnhealthyNodes: "yes or no",
	flag.VMEnabled:               "yes or no",
	flag.VMExtraArgs:             "yes or no",
	flag.VMLoadBalancer:          "yes or no",
	flag.WorkloadConnect:         "yes or no",
	flag.WorkloadIgnitionPath:    "ignored",
	flag.WorkloadUpdateEnabled:   "ignored",
}

// wrongValues are values that the setting must reject, and rightValues are unusual ones that it must accept.
var wrongValues = map[string][]string{
	flag.ServerListenAddress:        {"127.0.0.1:8000", "http://127.0.0.1", "http://127.0.0.1:80000", "tcp://127.0.0.1:80", "http://127.0.0.1:80/metrics"},
	flag.ServerListenMetricsAddress: {"8001", "http://127.0.0.1:x"},
	flag.ServerTLSCrtFile:           {"/nowhere/tls.crt"},
	flag.ServerTLSKeyFile:           {"/nowhere/tls.key"},
	flag.KubernetesAddress:          {"127.0.0.1:6443", "ftp://10.0.0.1", "https://user:secret@10.0.0.1", "https://10.0.0.1:99999"},
	flag.KubernetesKubeconfig:       {"not a kubeconfig", "{}"},
	flag.KubernetesKubeconfigPath:   {"/nowhere/kubeconfig"},
	flag.KubernetesTLSCAFile:        {"/nowhere/ca.crt"},
	flag.KubernetesTLSCrtFile:       {"/nowhere/tls.crt"},
	flag.KubernetesTLSKeyFile:       {"/nowhere/tls.key"},
	flag.CRDLabelSelector:           {"a==b==c", "a in b", "!"},
	flag.LeaderElectionDuration:     {"0", "2s", "-15s", "15500ms", "1h"},
	flag.LeaderElectionName:         {"", "KVM", "a/b", "a_b"},
	flag.LeaderElectionNamespace:    {"", "Giantswarm", "a.b"},
	flag.RBACGeneral:                {"a/b", "..", "50%"},
	flag.RBACPSP:                    {"a/b"},
	flag.IngressClassName:           {"Nginx", "nginx_1"},
	flag.IngressAllowedDomains:      {"K8s.example.org", "*.example.org", ".example.org"},
	flag.SecretsAdoptFrom:           {"Default", "a/b"},

	flag.ImageRunner:              {"", "a b", "registry.example.org/Runner:1", "https://registry.example.org/runner", "runner:", "runner@sha256:12", "runner:4.0.0+k3s1"},
	flag.InstallationDomain:       {"", "Cluster.Local", "cluster.local.", "-x"},
	flag.InstallationDNSServers:   {"10.0.0.1:53", "ns.example.org", "10.0.0", "fe80::1%eth0", "0.0.0.0", "224.0.0.1", "10.0.0.2,x"},
	flag.InstallationNTPServers:   {"ntp example", "ntp.example.org:123"},
	flag.InstallationPodCIDRs:     {"10.0.0.0", "foo", "10.0.0.1/8", "0.0.0.0/0", "10.0.0.0/33"},
	flag.InstallationServiceCIDRs: {"10.0.0.0", "foo", "10.96.0.1/12", "::/0"},
	flag.InstallationHostCIDRs:    {"192.168.10.1/33", "0.0.0.0/0", "foo"},
	flag.EgressAllowed:            {"registry.example.org", "10.0.0.0/33"},
	flag.OIDCClientID:             {"a\x7fb"},
	flag.OIDCIssuerURL: {
		"http://dex.example.org", "dex.example.org", "https://u:p@dex.example.org", "https://dex.example.org?a=b", "https://dex.example.org#x",
		`https://dex.example.org/"x`, "https://dex.example.org/'x",
	},
	flag.OIDCUsernameClaim:  {"a\x7fb"},
	flag.OIDCUsernamePrefix: {"a\nb"},
	flag.OIDCGroupsClaim:    {"a\x7fb"},
	flag.OIDCGroupsPrefix:   {"a\nb"},

	flag.RegistryDomain:            {"https://registry.example.org", "registry.example.org/Path", "a b"},
	flag.RegistryMirrors:           {"https://mirror.example.org", "mirror.example.org/path"},
	flag.RegistryDockerhubToken:    {"user:password", "dXNlcg=="},
	flag.WorkloadBinariesURL:       {"dl.k8s.io", "ftp://dl.k8s.io", "https://dl.k8s.io/$x"},
	flag.WorkloadCNIPluginsURL:     {"mirror.example.org", "ftp://mirror.example.org"},
	flag.EtcdRetention:             {"-1h"},
	flag.WorkloadKubeconfigTerm:    {"1h", "-1h", "0"},
	flag.WorkloadNodeTerm:          {"1h", "-1h", "0"},
	flag.MachineImageDirectories:   {"images", "/", "/a/../etc", "/a/"},
	flag.NodePodsAnnotations:       {"a", "=b", "a b=c"},
	flag.NodePodsNodeSelector:      {"a", "=b", "a=b c", "a/b/c=d"},
	flag.VMLoadBalancerAnnotations: {"a", "=b", "a b=c"},
	flag.VMLoadBalancerLabels:      {"a", "=b", "a=b c"},
	flag.NodePodsTolerations:       {"=b", "a=b:Never", "a b:NoSchedule", ":NoSchedule"},
	flag.NodePodsPullSecrets:       {"A", "a/b"},
	flag.ServerLogFormat:           {"", "JSON", "xml"},
	flag.ServerLogLevel:            {"", "INFO", "trace"},
	flag.NodePodsPriorityClass:     {"A", "a b"},
	flag.NodePodsZoneSpread:        {"", "often"},
	flag.VMImage:                   {"a b", "registry.example.org/Runner:1"},
	flag.VMBridges:                 {"br0/..", "..", "a-name-of-16-char"},
	flag.VMAllowedImages:           {"https://registry.example.org/runner", "runner,a b"},
	flag.VMImageRepository:         {"A", "a/b"},
	flag.VMDataStorageClass:        {"Fast", "a_b"},
	flag.MachineKVMResource:        {"kvm", "kubernetes.io/kvm", "a.kubernetes.io/kvm", "devices.kubevirt.io/", "Devices.example.org/kvm", "a/b/c"},
	flag.MachinePodSecurity:        {"", "restricted", "baseline"},
	flag.MachineMaxImageFile:       {"", "8", "8 G", "-1G", "lots"},
	flag.MachineDiskRequest:        {"-1", "101"},
	flag.WorkloadFlatcarChannel:    {"", "../x", "Stable", "a/b"},
	flag.WorkloadFlatcarMirror:     {"ftp://x", "mirror.example.org", "https://mirror example.org"},
	flag.WorkloadProxyHTTP:         {"proxy.example.org:3128", "socks5://proxy.example.org"},
	flag.WorkloadProxyHTTPS:        {"proxy.example.org:3128", "http://u:p$@proxy.example.org"},
	flag.WorkloadProxyNoProxy:      {"a b", "$x"},
	flag.WorkloadSSHSSOPublicKey:   {"AAAA", "ssh-rsa"},
	flag.DrainTimeout:              {"-5m"},

	flag.Controllers:              {"", "kvmconfigs", "kvmconfig,", "smolvm,x"},
	flag.SmolVMCAFile:             {"/nowhere/ca.crt"},
	flag.SmolVMTokenFile:          {"", "/nowhere/token"},
	flag.VaultAddress:             {"vault.example.org:8200", "https://token@vault.example.org"},
	flag.VaultCAFile:              {"/nowhere/ca.crt"},
	flag.VaultTokenFile:           {"/nowhere/token"},
	flag.VaultKubernetesRole:      {"", "a/b", "a b"},
	flag.VaultKubernetesMount:     {"", "../sys", "/kubernetes", "a?b"},
	flag.VaultKubernetesTokenFile: {"", "/nowhere/token"},
	flag.VaultMountPrefix:         {"", "../pki-", "pki ", "/pki-"},
	flag.VaultTTL:                 {"1h", "-1h"},
}

var rightValues = map[string][]string{
	flag.ServerListenAddress:        {"", "http://:8000", "http://[::1]:8000", "https://0.0.0.0:8443"},
	flag.ServerListenMetricsAddress: {"http://0.0.0.0:8001"},
	flag.KubernetesAddress:          {"https://10.0.0.1", "https://[fd00::1]:6443", "http://127.0.0.1:8080"},
	flag.CRDLabelSelector:           {"", "a=b,c!=d", "a in (b,c)"},
	flag.LeaderElectionDuration:     {"3s", "5m"},
	flag.LeaderElectionName:         {"kvm-operator-3-18-6"},
	flag.RBACGeneral:                {"", "system:node-pods"},
	flag.IngressClassName:           {"", "nginx.internal"},
	flag.ImageRunner: {
		"runner", "registry.example.org:5000/a/b_c:4.0.0-dirty", "[fd00::1]:5000/runner:1", "localhost/x__y:v1", "r.example.org/runner:4.0.0@sha256:" + strings.Repeat("a", 64),
		"registry.example.org/runner@sha256:" + strings.Repeat("0", 64),
	},
	flag.InstallationDomain:       {"k8s.example.org", "local"},
	flag.InstallationDNSServers:   {"", "10.0.0.2,fd00::2"},
	flag.InstallationNTPServers:   {"ntp.example.org,10.0.0.1"},
	flag.InstallationPodCIDRs:     {"", "10.244.0.0/16,fd00::/48"},
	flag.OIDCIssuerURL:            {"https://dex.example.org:5556/dex"},
	flag.RegistryDomain:           {"registry.example.org:5000/k8s"},
	flag.WorkloadFlatcarChannel:   {"beta", "lts-2026"},
	flag.WorkloadFlatcarMirror:    {"", "http://mirror.example.org/{channel}/{version}/", "file:///srv/flatcar"},
	flag.WorkloadProxyHTTP:        {"", "http://user:p%40ss@proxy.example.org:3128"},
	flag.WorkloadProxyNoProxy:     {"10.0.0.0/8,.svc,example.org"},
	flag.DrainTimeout:             {"0", "0s", "720h"},
	flag.Controllers:              {"kvmconfig", "virtualmachine,kvmconfig"},
	flag.SmolVMCAFile:             {"/nowhere/ca.crt/that/is/not/needed"},
	flag.SmolVMTokenFile:          {"/nowhere/token/that/is/not/needed"},
	flag.VaultKubernetesMount:     {"auth/kubernetes-mc1"},
	flag.VaultMountPrefix:         {"mc1/pki-"},
	flag.VaultTTL:                 {"168h"},
	flag.VaultKubernetesTokenFile: {"/nowhere/token/that/is/not/needed"},
}

// settingsWith returns the defaults with one setting changed.
func settingsWith(t *testing.T, name, value string, more ...string) *pflag.FlagSet {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flag.Register(fs, runnerImage(), vmRunnerImage())
	// Some settings depend on others: single sign-on, and Vault with a token of the service account.
	base := []string{}
	if strings.Contains(name, ".oidc.") && value != "" {
		base = append(base, "--"+flag.OIDCIssuerURL+"=https://dex.example.org", "--"+flag.OIDCClientID+"=kubernetes")
	}
	if err := fs.Parse(append(append(base, more...), "--"+name+"="+value)); err != nil {
		t.Fatal(err)
	}
	return fs
}

// TestEverySettingIsChecked: a setting either rejects wrong values with a sentence that names the setting, or it has no
// wrong values and the reason is listed. A new setting with neither fails the test.
func TestEverySettingIsChecked(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flag.Register(fs, runnerImage(), vmRunnerImage())
	if err := validate(fs, checks, fileChecks); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	fs.VisitAll(func(f *pflag.Flag) {
		values, checked := wrongValues[f.Name]
		_, free := freeSettings[f.Name]
		if checked == free {
			t.Errorf("%s is to stand either in wrongValues or, with a reason, in freeSettings", f.Name)
		}
		for _, value := range values {
			more := []string{}
			if f.Name == flag.VaultKubernetesTokenFile {
				more = append(more, "--"+flag.VaultAddress+"=https://vault.example.org")
			}
			if f.Name == flag.SmolVMCAFile || f.Name == flag.SmolVMTokenFile {
				more = append(more, "--"+flag.Controllers+"=smolvm")
			}
			err := validate(settingsWith(t, f.Name, value, more...), checks, fileChecks)
			if err == nil {
				t.Errorf("%s=%q is accepted", f.Name, value)
				continue
			}
			if !strings.Contains(err.Error(), f.Name+" ") {
				t.Errorf("%s=%q: the message does not name the setting: %v", f.Name, value, err)
			}
			if strings.Contains(err.Error(), "user:secret") || strings.Contains(err.Error(), "u:p") {
				t.Errorf("%s: the message tells a password: %v", f.Name, err)
			}
		}
		for _, value := range rightValues[f.Name] {
			if err := validate(settingsWith(t, f.Name, value), checks, fileChecks); err != nil {
				t.Errorf("%s=%q is refused: %v", f.Name, value, err)
			}
		}
	})
	for _, table := range []map[string]check{checks, fileChecks} {
		for name := range table {
			if fs.Lookup(name) == nil {
				t.Errorf("a check is for %s, which is no setting", name)
			}
		}
	}
}

// TestCommandsCheckSettings: both commands refuse to start before they send any request.
func TestCommandsCheckSettings(t *testing.T) {
	for name, args := range map[string][]string{
		"daemon": {"daemon"}, "render": {"render", "-f", "../docs/examples/minimal.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			c := New()
			c.SetArgs(append(args, "--"+flag.InstallationDNSServers+"=10.0.0.1:53"))
			err := c.ExecuteContext(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), flag.InstallationDNSServers+" has to hold addresses without port") {
				t.Errorf("it begins, or says something else: %v", err)
			}
		})
	}
}

// TestFilesOfSettings: files that belong together have to be set together, and readable files are accepted.
func TestFilesOfSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tls")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	pair := settingsWith(t, flag.ServerTLSCrtFile, file, "--"+flag.ServerTLSKeyFile+"="+file)
	if err := validate(pair, fileChecks); err != nil {
		t.Error(err)
	}
	want := flag.ServerTLSKeyFile + " has to be given together with " + flag.ServerTLSCrtFile
	if err := validate(settingsWith(t, flag.ServerTLSCrtFile, file), fileChecks); err == nil || err.Error() != want {
		t.Errorf("a certificate without a key: %v, want %s", err, want)
	}
}

// TestAllMistakesAreToldAtOnce: each mistake is one line.
func TestAllMistakesAreToldAtOnce(t *testing.T) {
	fs := settingsWith(t, flag.InstallationDNSServers, "10.0.0.1:53", "--"+flag.InstallationPodCIDRs+"=foo", "--"+flag.DrainTimeout+"=-5m")
	err := validate(fs, checks)
	want := `service.drain.timeout has to be zero or more, such as 1h; zero waits without an end
service.installation.dns.servers has to hold addresses without port, such as 10.0.0.2,10.0.0.3; "10.0.0.1:53" is none
service.installation.podcidrs has to hold networks such as 10.244.0.0/16: an address with all bits behind the prefix zero; "foo" is none`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}
