package chart_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/kvm-operator/kvm-operator/flag"
	"github.com/kvm-operator/kvm-operator/pkg/project"
)

const oidc = "service.installation.workload.kubernetes.api.auth.provider.oidc."

// decided are the settings that the chart sets, whatever the values.
var decided = map[string]string{
	flag.ServerListenAddress: "http://:8000",
	flag.KubernetesInCluster: "true",
}

// unreachable are the settings that no value sets, each with the reason.
var unreachable = map[string]string{
	flag.ConfigDirs:                 "where the chart mounts its files",
	flag.ConfigFiles:                "what the chart calls its files",
	flag.ServerListenMetricsAddress: "one port serves health and metrics",
	flag.ServerTLSCAFile:            "ignored by the operator",
	flag.ServerTLSCrtFile:           "health and metrics are served in plain HTTP",
	flag.ServerTLSKeyFile:           "health and metrics are served in plain HTTP",
	flag.KubernetesAddress:          "the operator manages the cluster it runs in",
	flag.KubernetesKubeconfig:       "the operator manages the cluster it runs in",
	flag.KubernetesKubeconfigPath:   "the operator manages the cluster it runs in",
	flag.KubernetesTLSCAFile:        "the operator manages the cluster it runs in",
	flag.KubernetesTLSCrtFile:       "the operator manages the cluster it runs in",
	flag.KubernetesTLSKeyFile:       "the operator manages the cluster it runs in",
	flag.LeaderElectionEnabled:      "two operators are never to be at work",
	flag.LeaderElectionName:         "the name of the release, which is the default here",
	flag.SmolVMCAFile:               "the Deployment smolvm-controller has it",
	flag.SmolVMPullSecrets:          "the Deployment smolvm-controller has it",
	flag.SmolVMTokenFile:            "the Deployment smolvm-controller has it",
	flag.VaultKubernetesTokenFile:   "the operator's pod has its token where every pod has",
	flag.WorkloadIgnitionPath:       "ignored by the operator",
	flag.WorkloadUpdateEnabled:      "ignored by the operator",
}

func TestWithoutValuesEverySettingHasItsDefault(t *testing.T) {
	want := maps.Clone(decided)
	want[flag.NodePodsPriorityClass] = "kvm-operator-machines" // which the chart creates
	if diff := cmp.Diff(want, notDefault(load(t))); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestEveryValueReachesItsSetting(t *testing.T) {
	want := map[string]string{
		flag.ServerEnableDebugServer:   "true",
		flag.ServerLogAccess:           "true",
		flag.ServerLogFormat:           "text",
		flag.ServerLogLevel:            "debug",
		flag.Controllers:               "[virtualmachine]",
		flag.CRDLabelSelector:          "shard=one,kvm-operator.giantswarm.io/version in (4.0.0, 4.0.1)",
		flag.LeaderElectionDuration:    "30s",
		flag.LeaderElectionNamespace:   "elsewhere",
		flag.ImageRunner:               "registry.example.org:5000/own/runner:7",
		flag.IngressClassName:          "nginx",
		flag.IngressAllowedDomains:     "[k8s.example.org]",
		flag.InstallationDomain:        "mc.example.org",
		flag.InstallationDNSServers:    "[10.0.0.2,fd00::2]",
		flag.InstallationNTPServers:    "[ntp1.example.org,ntp2.example.org]",
		flag.InstallationPodCIDRs:      "[10.244.0.0/16,fd00:10:244::/56]",
		flag.InstallationServiceCIDRs:  "[10.96.0.0/12]",
		flag.InstallationHostCIDRs:     "[192.168.0.0/24]",
		flag.EgressRestricted:          "false",
		flag.EgressAllowed:             "[192.168.0.9,10.96.7.0/24]",
		flag.MachineForeignSources:     "true",
		flag.InstallationSharedHosts:   "true",
		flag.MachineAllowEmulation:     "true",
		flag.MachineNested:             "true",
		flag.MachineImageDirectories:   "[/usr/code/images/own]",
		flag.NodePodsAnnotations:       "[example.org/team=platform]",
		flag.NodePodsNodeSelector:      "[example.org/machines=true]",
		flag.NodePodsTolerations:       "[example.org/machines=true:NoSchedule,example.org/spare]",
		flag.NodePodsPullSecrets:       "[registry]",
		flag.NodePodsPriorityClass:     "machines",
		flag.NodePodsZoneSpread:        "required",
		flag.MachineKVMResource:        "[devices.kubevirt.io/kvm,devices.kubevirt.io/tun,devices.kubevirt.io/vhost-net]",
		flag.MachinePodSecurity:        "baseline",
		flag.MachineMaxImageFile:       "20G",
		flag.MachineDiskRequest:        "50",
		flag.VMEnabled:                 "false",
		flag.VMImage:                   "registry.example.org/vm-runner:4.0.0",
		flag.VMBridges:                 "[br0]",
		flag.VMAllowedImages:           "[registry.example.org/vm]",
		flag.VMImageRepository:         "vmop-image-repository",
		flag.VMDataStorageClass:        "fast",
		flag.VMExtraArgs:               "true",
		flag.VMLoadBalancer:            "true",
		flag.VMLoadBalancerAnnotations: "[example.org/pool=displays]",
		flag.VMLoadBalancerLabels:      "[example.org/team=platform]",
		flag.WorkloadConnect:           "false",
		flag.EtcdRetention:             "720h0m0s",
		flag.WorkloadKubeconfigTerm:    "48h0m0s",
		flag.WorkloadNodeTerm:          "720h0m0s",
		oidc + "clientid":              "kubernetes",
		oidc + "issuerurl":             "https://dex.example.org",
		oidc + "usernameclaim":         "email",
		oidc + "usernameprefix":        "oidc:",
		oidc + "groupsclaim":           "groups",
		oidc + "groupsprefix":          "-",
		flag.RBACGeneral:               "node-pods",
		flag.RBACPSP:                   "node-pods-psp",
		flag.RegistryDomain:            "mirror.example.org/kubernetes",
		flag.RegistryMirrors:           "[one.example.org,two.example.org:5000]",
		flag.RegistryDockerhubToken:    "dXNlcjpwYXNzd29yZA==",
		flag.SecretsAdoptFrom:          "[certificates,keys]",
		flag.TerminateUnhealthyNodes:   "true",
		flag.DrainTimeout:              "30m0s",
		flag.VaultAddress:              "https://vault.example.org:8200",
		flag.VaultCAFile:               "/var/run/kvm-operator/vault/ca.crt",
		flag.VaultTokenFile:            "/var/run/kvm-operator/vault/token",
		flag.VaultKubernetesRole:       "certificates",
		flag.VaultKubernetesMount:      "kubernetes-mc",
		flag.VaultMountPrefix:          "pki-mc-",
		flag.VaultTTL:                  "720h0m0s",
		flag.WorkloadBinariesURL:       "https://binaries.example.org/kubernetes",
		flag.WorkloadCNIPluginsURL:     "https://binaries.example.org/cni",
		flag.WorkloadFlatcarChannel:    "lts",
		flag.WorkloadFlatcarMirror:     "https://files.example.org/flatcar/{channel}/{version}",
		flag.WorkloadProxyHTTP:         "http://user:pass%23word@proxy.example.org:3128",
		flag.WorkloadProxyHTTPS:        "http://user:pass%23word@proxy.example.org:3128",
		flag.WorkloadProxyNoProxy:      "[10.0.0.0/8,.svc,10.244.0.0/16]",
		flag.WorkloadSSHSSOPublicKey:   `ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1tQjv1BFYyLZ5jBoHXqPzYQDcnzpKXJPZoDFO1bkbK sso: "users"`,
	}
	maps.Copy(want, decided)
	if diff := cmp.Diff(want, notDefault(load(t, "--values="+full, "--namespace=elsewhere"))); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	register().VisitAll(func(f *pflag.Flag) {
		_, reached := want[f.Name]
		if _, excused := unreachable[f.Name]; reached == excused {
			t.Errorf("setting %s: a value leads to it: %t, there is a reason why none does: %t", f.Name, reached, excused)
		}
	})
}

// TestImagesOfBothComeFromTheSamePlace: a mirror of the operator's image is also used for node pods.
func TestImagesOfBothComeFromTheSamePlace(t *testing.T) {
	for set, want := range map[string]string{
		"image.registry=mirror.example.org": "mirror.example.org/kvm-operator/kvm-operator-runner:" + project.Version(),
		"image.name=own/operator":           "docker.io/own/operator-runner:" + project.Version(),
		"image.tag=4.0.1":                   "docker.io/kvm-operator/kvm-operator-runner:4.0.1",
	} {
		got := notDefault(load(t, "--set="+set))
		if got[flag.ImageRunner] != want {
			t.Errorf("with %s the image of node pods is %s, want %s", set, got[flag.ImageRunner], want)
		}
		if want := strings.Replace(want, "-runner:", "-vm-runner:", 1); got[flag.VMImage] != want {
			t.Errorf("with %s the image of VirtualMachines is %s, want %s", set, got[flag.VMImage], want)
		}
	}
}

func TestListsMayBeText(t *testing.T) {
	got := notDefault(load(t, `--set=dns.servers=10.0.0.2\,10.0.0.3,proxy.noProxy=.svc\, 10.0.0.0/8`))
	if got[flag.InstallationDNSServers] != "[10.0.0.2,10.0.0.3]" || got[flag.WorkloadProxyNoProxy] != "[.svc,10.0.0.0/8]" {
		t.Errorf("settings %v", got)
	}
}

// register returns the settings of an operator of this version.
func register() *pflag.FlagSet {
	fs := pflag.NewFlagSet("daemon", pflag.ContinueOnError)
	flag.Register(fs, "docker.io/kvm-operator/kvm-operator-runner:"+project.Version(), "docker.io/kvm-operator/kvm-operator-vm-runner:"+project.Version())
	return fs
}

// load reads the settings as the operator in the rendered Deployment does.
func load(t *testing.T, values ...string) *pflag.FlagSet {
	t.Helper()
	arguments := parse(t, render(t, values...)).commandLine(t)
	if arguments[0] != "daemon" {
		t.Fatalf("the arguments %v do not begin with the command", arguments)
	}
	fs := register()
	if err := fs.Parse(arguments[1:]); err != nil {
		t.Fatal(err)
	}
	if err := flag.Load(fs, func(string) (string, bool) { return "", false }); err != nil {
		t.Fatal(err)
	}
	return fs
}

// notDefault returns the settings whose value differs from the default, except where the files are.
func notDefault(fs *pflag.FlagSet) map[string]string {
	changed := map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Value.String() != f.DefValue && !slices.Contains([]string{flag.ConfigDirs, flag.ConfigFiles}, f.Name) {
			changed[f.Name] = f.Value.String()
		}
	})
	return changed
}
