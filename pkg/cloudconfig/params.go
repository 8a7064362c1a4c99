// Package cloudconfig renders what a guest reads when it boots: an Ignition config that turns a bare operating system
// image into a node of a workload cluster.
//
// A config comes in two halves. The public one stands in a ConfigMap; the private one, with every private key, token and
// password, stands in a Secret. The runner merges them and adds host name and network.
//
// Everything here is pure: no I/O, no clock, no randomness. The same Params give the same bytes.
package cloudconfig

import (
	"net/url"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

// Values of Params.EtcdState.
const (
	// EtcdNew is the state of a member that founds the cluster.
	EtcdNew = "new"
	// EtcdExisting is the state of a member that joins a cluster that has data already.
	EtcdExisting = "existing"
)

// EtcdFounding is what the Params.EtcdTicket of a founder begins with, or key.EtcdRestored when the cluster's etcd begins with a snapshot,
// which is no right to begin with an empty disk: the data has to be there, and has to have been put there with the same ticket.
const EtcdFounding = "founding"

// Node is the node whose boot data is rendered.
type Node struct {
	// ID of the node.
	ID string
	// Role is master or worker.
	Role string
	// Index is the node's number in its cluster, 1 or greater; it is part of the iSCSI initiator's name.
	Index int32
	// CPUs are the processors of the machine. Zero: unknown.
	CPUs int64
	// MemoryMiB is the memory of the machine in MiB. Zero: unknown.
	MemoryMiB int64
	// MountTags are the 9p tags of the host volumes; each is mounted at /data/<tag>. Workers only.
	MountTags []string
	// Labels are further labels of the Node, "key=value" separated by commas.
	Labels string
}

// Member is a member of the cluster's etcd.
type Member struct {
	// Name is pki.EtcdMember of the master's id.
	Name string
	// PeerURL is where other members reach it: https, a host name that its certificate carries, a port.
	PeerURL string
}

// Params is everything that the boot data of a node depends on.
type Params struct {
	// Cluster is spec.cluster with defaults filled in.
	Cluster v1alpha1.Cluster
	// Node is the node whose boot data is rendered.
	Node Node
	// Versions are those of kubernetes and etcd, without a leading "v".
	Versions v1alpha1.Versions
	// Certificates are the key pairs of the cluster by the names of package pki.
	Certificates pki.Set
	// EncryptionKey is base64 text of the 32 bytes that encrypt Secrets in etcd. Masters only.
	EncryptionKey string
	// BootstrapToken lets the kubelet ask for its certificate: "abcdef.0123456789abcdef".
	BootstrapToken string
	// APIServerURL is how workers, and pods of any node, reach the API server.
	APIServerURL string
	// EtcdMembers are the members that found the cluster, all members including this one when it joins, or this one alone when
	// it has run: then nobody reads the others. Masters only.
	EtcdMembers []Member
	// EtcdState is EtcdNew or EtcdExisting. Masters only.
	EtcdState string
	// EtcdFrom is the ticket of the snapshot that the cluster's etcd began with, or what tells the cluster from one that was made under its
	// name before; it becomes part of the numbers of founders. Masters only.
	EtcdFrom string
	// EtcdTicket is the right to begin with an empty disk: EtcdFounding, or the id of the member that was added for this
	// master. Empty for a member that has run. Masters only.
	EtcdTicket string
	// Emulated says that software emulates the processors of the cluster's machines.
	Emulated bool
	// Settings are the operator's.
	Settings Settings
}

// Settings are the operator-wide settings that reach guests. The zero value is valid.
type Settings struct {
	// RegistryDomain is the registry of the node's images, with an optional path. Empty: registry.k8s.io.
	RegistryDomain string
	// RegistryMirrors are hosts, without scheme, that hold what the registry holds. They are asked in this order, the
	// registry itself last.
	RegistryMirrors []string
	// DockerhubToken is base64 of user:password for the registry, or for Docker Hub while RegistryDomain is the default.
	// Secret.
	DockerhubToken string
	// Proxy leads the guests to the world outside.
	Proxy Proxy
	// NTPServers are the time servers. Empty: the image decides.
	NTPServers []string
	// SSOPublicKey is the OpenSSH public key of the authority that signs users' SSH certificates. Empty: none is trusted.
	SSOPublicKey string
	// OIDC is the sign-on of clusters that name none of their own.
	OIDC v1alpha1.OIDC
	// NodeTerm is how long the certificates of kubelets hold; zero for a week.
	NodeTerm time.Duration
	// BinaryBaseURL is where a kubelet comes from when the image has none: <url>/v<version>/bin/linux/<arch>/kubelet and
	// the same with .sha256. Empty: https://dl.k8s.io.
	BinaryBaseURL string
	// CNIPluginsBaseURL is where the standard CNI plugins come from when the image has none:
	// <url>/v<version>/cni-plugins-linux-<arch>-v<version>.tgz and the same with .sha256. Empty: the releases of their makers at GitHub.
	CNIPluginsBaseURL string
}

// Proxy is an HTTP proxy between the guests and the world outside.
type Proxy struct {
	// HTTP and HTTPS are the proxy's URLs by the scheme of what is asked for. They may carry a password and are secret.
	HTTP, HTTPS string
	// NoProxy are hosts, domains and networks that are reached directly, besides those of the cluster itself. The pod
	// network of the management cluster, which the guests' addresses belong to, has to be among them.
	NoProxy []string
}

func (p Proxy) isSet() bool { return p.HTTP != "" || p.HTTPS != "" }

func (p Params) master() bool { return p.Node.Role == key.RoleMaster }

// apiServerURL is how this node reaches the API server. A master asks its own: it must come up when no other runs.
func (p Params) apiServerURL() string {
	if p.master() {
		return p.localAPIServerURL()
	}
	return p.APIServerURL
}

// apiServerHost is the name of the API server on all nodes.
func (p Params) apiServerHost() string {
	u, err := url.Parse(p.APIServerURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// oidc is the sign-on of this cluster: its own or, as a whole, the operator's.
func (p Params) oidc() v1alpha1.OIDC {
	if own := p.Cluster.Kubernetes.API.OIDC; own != nil {
		return *own
	}
	return p.Settings.OIDC
}
