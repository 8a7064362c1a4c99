package cmd

import (
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/kvm-operator/kvm-operator/flag"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/vault"
	"github.com/kvm-operator/kvm-operator/pkg/project"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/service"
)

// runnerImage is the image of node pods that belongs to this binary.
func runnerImage() string { return "docker.io/kvm-operator/kvm-operator-runner:" + project.Version() }

// vmRunnerImage is the one of VirtualMachines.
func vmRunnerImage() string {
	return "docker.io/kvm-operator/kvm-operator-vm-runner:" + project.Version()
}

// reader reads registered flags. A flag that is not registered is a mistake in this program.
type reader struct{ *pflag.FlagSet }

func (r reader) text(name string) string {
	value, err := r.GetString(name)
	must(err)
	return value
}

func (r reader) list(name string) []string {
	value, err := r.GetStringSlice(name)
	must(err)
	return value
}

func (r reader) yes(name string) bool {
	value, err := r.GetBool(name)
	must(err)
	return value
}

func (r reader) duration(name string) time.Duration {
	value, err := r.GetDuration(name)
	must(err)
	return value
}

func (r reader) number(name string) int {
	value, err := r.GetInt(name)
	must(err)
	return value
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// clusterSettings are the settings that shape clusters.
func clusterSettings(fs *pflag.FlagSet) state.Settings {
	r := reader{fs}
	return state.Settings{
		Guest:          guestSettings(r),
		RunnerImage:    r.text(flag.ImageRunner),
		ClusterDomain:  r.text(flag.InstallationDomain),
		DNSServers:     r.list(flag.InstallationDNSServers),
		FlatcarChannel: r.text(flag.WorkloadFlatcarChannel),
		FlatcarMirror:  r.text(flag.WorkloadFlatcarMirror),
		ClusterRole:    r.text(flag.RBACGeneral),
		PSPClusterRole: r.text(flag.RBACPSP),
		AdoptFrom:      r.list(flag.SecretsAdoptFrom),
		IngressClass:   r.text(flag.IngressClassName),
		IngressDomains: r.list(flag.IngressAllowedDomains),
		PodCIDRs:       r.list(flag.InstallationPodCIDRs),
		ServiceCIDRs:   r.list(flag.InstallationServiceCIDRs),
		SharedHosts:    r.yes(flag.InstallationSharedHosts),
		Egress:         egress(r),
		ForeignSources: r.yes(flag.MachineForeignSources),
		Machine: state.MachineSettings{
			AllowEmulation: r.yes(flag.MachineAllowEmulation), NestedVirtualization: r.yes(flag.MachineNested),
			ImageDirectories: r.list(flag.MachineImageDirectories), MaxImageFile: r.text(flag.MachineMaxImageFile),
			DeviceResources: r.list(flag.MachineKVMResource), PodSecurity: r.text(flag.MachinePodSecurity), DiskRequestPercent: r.number(flag.MachineDiskRequest),
		},
		Pods:           podSettings(r),
		MachinesOnly:   !r.yes(flag.WorkloadConnect),
		EtcdRetention:  r.duration(flag.EtcdRetention),
		KubeconfigTerm: atLeastADay(r.duration(flag.WorkloadKubeconfigTerm)),

		TerminateUnhealthyNodes: r.yes(flag.TerminateUnhealthyNodes),
	}
}

// machineSettings are the settings for VirtualMachines.
func machineSettings(fs *pflag.FlagSet) virtualmachine.Settings {
	r := reader{fs}
	s := virtualmachine.Settings{
		RunnerImage: r.text(flag.VMImage), AllowedImages: r.list(flag.VMAllowedImages), Bridges: r.list(flag.VMBridges),
		AllowEmulation: r.yes(flag.MachineAllowEmulation), DeviceResources: r.list(flag.MachineKVMResource),
		ImageRepository: r.text(flag.VMImageRepository), ExtraArgs: r.yes(flag.VMExtraArgs),
	}
	if r.yes(flag.VMLoadBalancer) {
		s.LoadBalancer = &virtualmachine.LoadBalancer{
			Labels: r.pairs(flag.VMLoadBalancerLabels, state.ParseLabel), Annotations: r.pairs(flag.VMLoadBalancerAnnotations, state.ParseAnnotation),
		}
	}
	if class := r.text(flag.VMDataStorageClass); class != "" {
		s.DataStorageClass = &class
	}
	return s
}

// runs returns whether the operator has a controller.
func (r reader) runs(controller string) bool {
	return slices.Contains(r.list(flag.Controllers), controller)
}

// servedSmolVMs are the settings for SmolVMs; nil if the operator ignores them.
func servedSmolVMs(r reader) *service.SmolVMs {
	if !r.runs(flag.ControllerSmolVM) {
		return nil
	}
	return &service.SmolVMs{TokenFile: r.text(flag.SmolVMTokenFile), CAFile: r.text(flag.SmolVMCAFile), PullSecrets: r.yes(flag.SmolVMPullSecrets)}
}

// servedMachines are the settings for VirtualMachines; nil if the operator ignores them.
func servedMachines(r reader) *virtualmachine.Settings {
	if !r.yes(flag.VMEnabled) || !r.runs(flag.ControllerVirtualMachine) {
		return nil
	}
	return new(machineSettings(r.FlagSet))
}

// podSettings expects values that validate has accepted.
func podSettings(r reader) state.PodSettings {
	s := state.PodSettings{
		PriorityClass: r.text(flag.NodePodsPriorityClass), PullSecrets: r.list(flag.NodePodsPullSecrets),
		ZoneSpread:   state.ZoneSpread(r.text(flag.NodePodsZoneSpread)),
		NodeSelector: r.pairs(flag.NodePodsNodeSelector, state.ParseLabel), Annotations: r.pairs(flag.NodePodsAnnotations, state.ParseAnnotation),
	}
	for _, text := range r.list(flag.NodePodsTolerations) {
		toleration, err := state.ParseToleration(text)
		must(err)
		s.Tolerations = append(s.Tolerations, toleration)
	}
	return s
}

// pairs returns a setting of texts like key=value.
func (r reader) pairs(name string, parse func(string) (key, value string, err error)) map[string]string {
	all := map[string]string{}
	for _, text := range r.list(name) {
		key, value, err := parse(text)
		must(err)
		all[key] = value
	}
	return all
}

// atLeastADay bounds the validity of certificates from below. Frequent renewal costs requests, and a short outage would
// let certificates expire.
func atLeastADay(term time.Duration) time.Duration { return max(term, 24*time.Hour) }

// vaultConfig says where Vault is. It is nil when no Vault is configured.
func vaultConfig(r reader) *vault.Config {
	if r.text(flag.VaultAddress) == "" {
		return nil
	}
	return &vault.Config{
		Address: r.text(flag.VaultAddress), CAFile: r.text(flag.VaultCAFile), TokenFile: r.text(flag.VaultTokenFile),
		KubernetesRole: r.text(flag.VaultKubernetesRole), KubernetesMount: r.text(flag.VaultKubernetesMount),
		KubernetesTokenFile: r.text(flag.VaultKubernetesTokenFile),
		MountPrefix:         r.text(flag.VaultMountPrefix), TTL: r.duration(flag.VaultTTL),
	}
}

func guestSettings(r reader) cloudconfig.Settings {
	return cloudconfig.Settings{
		RegistryDomain:    r.text(flag.RegistryDomain),
		RegistryMirrors:   r.list(flag.RegistryMirrors),
		DockerhubToken:    r.text(flag.RegistryDockerhubToken),
		NTPServers:        r.list(flag.InstallationNTPServers),
		SSOPublicKey:      r.text(flag.WorkloadSSHSSOPublicKey),
		BinaryBaseURL:     r.text(flag.WorkloadBinariesURL),
		CNIPluginsBaseURL: r.text(flag.WorkloadCNIPluginsURL),
		NodeTerm:          atLeastADay(r.duration(flag.WorkloadNodeTerm)),
		Proxy: cloudconfig.Proxy{
			HTTP: r.text(flag.WorkloadProxyHTTP), HTTPS: r.text(flag.WorkloadProxyHTTPS), NoProxy: r.list(flag.WorkloadProxyNoProxy),
		},
		OIDC: v1alpha1.OIDC{
			ClientID: r.text(flag.OIDCClientID), IssuerURL: r.text(flag.OIDCIssuerURL),
			UsernameClaim: r.text(flag.OIDCUsernameClaim), UsernamePrefix: r.text(flag.OIDCUsernamePrefix),
			GroupsClaim: r.text(flag.OIDCGroupsClaim), GroupsPrefix: r.text(flag.OIDCGroupsPrefix),
		},
	}
}
