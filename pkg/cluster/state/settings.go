package state

import (
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// Settings are the operator's, the same for all clusters.
type Settings struct {
	// Guest are the settings of the guests.
	Guest cloudconfig.Settings

	// RunnerImage is the image of the node pods' container.
	RunnerImage string
	// ClusterDomain is the DNS domain of the management cluster.
	ClusterDomain string
	// DNSServers are those of the guests; none means those of the node pod.
	DNSServers []string
	// FlatcarChannel is the release channel of the default guest image.
	FlatcarChannel string
	// FlatcarMirror is the URL of the directory with its files, in which {channel} and {version} are placeholders of
	// the release; empty means Flatcar's own.
	FlatcarMirror string

	// ClusterRole is the role that the node pods' service account is bound to, and PSPClusterRole a second one; empty
	// means none.
	ClusterRole, PSPClusterRole string
	// AdoptFrom are the namespaces besides a KVMConfig's own from which Secrets are adopted.
	AdoptFrom []string
	// IngressClass is the class of the Ingresses "api" and "etcd"; empty means no Ingress.
	IngressClass string
	// IngressDomains are the domains to which their hosts have to belong; empty means any.
	IngressDomains []string
	// PodCIDRs are the pod networks of the management cluster, which the node pods of other clusters are in.
	PodCIDRs []string
	// ServiceCIDRs are the service networks of the management cluster.
	ServiceCIDRs []string
	// Egress says what guests may reach.
	Egress Egress
	// ForeignSources allows guests to send packets from addresses that are not their own.
	ForeignSources bool
	// SharedHosts allows several machines of one cluster on the same host, if that cannot be avoided.
	SharedHosts bool
	// Machine is what all machines have in common.
	Machine MachineSettings
	// Pods is what the pods of all machines have in common.
	Pods PodSettings
	// MachinesOnly makes the operator ignore the workload clusters.
	MachinesOnly bool
	// KubeconfigTerm is how long the administrator's kubeconfig is valid; zero means DefaultKubeconfigTerm.
	KubeconfigTerm time.Duration
	// EtcdRetention is how long etcd data that masters have left on hosts is kept.
	EtcdRetention time.Duration
	// TerminateUnhealthyNodes replaces nodes that stay unhealthy, unless a KVMConfig decides otherwise.
	TerminateUnhealthyNodes bool
}

// MachineSettings are settings of the installation for all machines.
type MachineSettings struct {
	// AllowEmulation allows machines to be emulated in software. Otherwise a machine without KVM does not start.
	AllowEmulation bool
	// NestedVirtualization allows guests to run virtual machines.
	NestedVirtualization bool
	// ImageDirectories are the directories of node pods that file URLs of guest images may refer to; none means that
	// file URLs are not allowed.
	ImageDirectories []string
	// DeviceResources are extended resources of device plugins that provide /dev/kvm, /dev/net/tun and /dev/vhost-net
	// to node pods, which are not privileged then. Without them node pods are privileged.
	DeviceResources []string
	// PodSecurity is the Pod Security level that node pods meet, key.PodSecurityPrivileged or key.PodSecurityBaseline.
	// The latter requires DeviceResources. Masters whose etcd is on their host always need privileged.
	PodSecurity string
	// MaxImageFile is the maximum size of each downloaded file of a guest image, such as 8G, where G is 2³⁰ bytes.
	MaxImageFile string
	// DiskRequestPercent is the percentage of the size of their disks that node pods request as ephemeral storage, 0 to
	// 100.
	DiskRequestPercent int
}

// Baseline returns whether node pods meet the Pod Security level baseline, as far as that depends on these settings.
func (m MachineSettings) Baseline() bool { return m.PodSecurity == key.PodSecurityBaseline }
