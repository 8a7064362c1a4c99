package cluster

import (
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// Settings are the operator's, the same for all clusters.
type Settings struct {
	// Guest are the settings that reach the guests.
	Guest cloudconfig.Settings

	// RunnerImage is the image of the node pods' container.
	RunnerImage string
	// ClusterDomain is the DNS domain of the management cluster.
	ClusterDomain string
	// DNSServers are those of the guests; none means those of the node pod.
	DNSServers []string
	// FlatcarChannel is the release channel of the default guest image.
	FlatcarChannel string
	// FlatcarMirror is the URL of the directory with its files, in which {channel} and {version} stand for the release; empty for Flatcar's own.
	FlatcarMirror string

	// ClusterRole is the role that the node pods' service account is bound to, PSPClusterRole a second one; empty for none.
	ClusterRole, PSPClusterRole string
	// AdoptFrom are the namespaces besides a KVMConfig's own from which Secrets are adopted.
	AdoptFrom []string
	// IngressClass is the class of the Ingresses "api" and "etcd"; empty for no Ingress.
	IngressClass string
	// IngressDomains are the domains in which their hosts have to be; empty for any.
	IngressDomains []string
	// PodCIDRs are the pod networks of the management cluster, from which other clusters' node pods would come.
	PodCIDRs []string
	// ServiceCIDRs are the service networks of the management cluster.
	ServiceCIDRs []string
	// Egress says what guests may reach.
	Egress Egress
	// ForeignSources lets guests send with addresses that are not their own.
	ForeignSources bool
	// SharedHosts lets several machines of one cluster run on the same host, where it cannot be avoided.
	SharedHosts bool
	// Machine is what all machines have in common.
	Machine MachineSettings
	// Pods is what all their pods have in common.
	Pods PodSettings
	// MachinesOnly leaves the workload clusters alone.
	MachinesOnly bool
	// KubeconfigTerm is how long the administrator's kubeconfig holds; zero for DefaultKubeconfigTerm.
	KubeconfigTerm time.Duration
	// EtcdRetention is how long the data of etcd that masters have left on hosts is kept.
	EtcdRetention time.Duration
	// TerminateUnhealthyNodes replaces nodes that stay unhealthy, where a KVMConfig does not say.
	TerminateUnhealthyNodes bool
}

// MachineSettings are what the operator's owner decides for all machines.
type MachineSettings struct {
	// AllowEmulation lets machines be emulated in software. Otherwise one without KVM does not start.
	AllowEmulation bool
	// NestedVirtualization lets guests run virtual machines of their own.
	NestedVirtualization bool
	// ImageDirectories are directories of node pods below which file URLs of guest images may lead; none means that there are no file URLs.
	ImageDirectories []string
	// DeviceResources are extended resources of device plugins that bring /dev/kvm, /dev/net/tun and /dev/vhost-net to node pods, which are not
	// privileged then. None: they are.
	DeviceResources []string
	// PodSecurity is the level of Pod Security that node pods meet, key.PodSecurityPrivileged or key.PodSecurityBaseline. The latter takes
	// DeviceResources. Masters whose etcd is on their host meet privileged in any case.
	PodSecurity string
	// MaxImageFile is how large each file of a guest image may be that is downloaded, such as 8G, G being 2³⁰ bytes.
	MaxImageFile string
	// DiskRequestPercent is how much of the size of their disks node pods request of their hosts as ephemeral storage, 0 to 100.
	DiskRequestPercent int
}

// Baseline says whether node pods meet the level baseline of Pod Security, as far as that is the machine's matter.
func (m MachineSettings) Baseline() bool { return m.PodSecurity == key.PodSecurityBaseline }
