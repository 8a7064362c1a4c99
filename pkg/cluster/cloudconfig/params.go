// Package cloudconfig renders what a guest reads when it boots: an Ignition config that turns a bare operating system
// image into a node of a workload cluster.
//
// A config comes in two halves. The public one is in a ConfigMap; the private one, with every private key, token and
// password, is in a Secret. The runner merges them and adds host name and network.
//
// Everything here is pure: no I/O, no clock, no randomness. The same Params give the same bytes.
package cloudconfig

import (
	"net/url"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// Values of Params.EtcdState.
const (
	// EtcdNew is the state of a member that founds the cluster.
	EtcdNew = "new"
	// EtcdExisting is the state of a member that joins a cluster that has data already.
	EtcdExisting = "existing"
)

// EtcdFounding is the prefix of the Params.EtcdFoundingToken of a founding member. If the cluster's etcd is restored
// from a snapshot, the prefix is key.EtcdRestored instead, which does not permit a start with an empty disk: the data
// has to exist, and has to have been placed with the same token.
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
	// Labels are additional labels of the Node, "key=value" separated by commas.
	Labels string
}

// Member is a member of the cluster's etcd.
type Member struct {
	// Name is pki.EtcdMember of the master's id.
	Name string
	// PeerURL is where other members reach it: https, a host name that is in its certificate, a port.
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
	// BootstrapToken lets the kubelet request its certificate: "abcdef.0123456789abcdef".
	BootstrapToken string
	// APIServerURL is how workers, and pods of any node, reach the API server.
	APIServerURL string
	// EtcdMembers are the members that found the cluster, or all members including this one if it joins, or only this
	// one if it has run, because then the others are not read. Masters only.
	EtcdMembers []Member
	// EtcdState is EtcdNew or EtcdExisting. Masters only.
	EtcdState string
	// EtcdFrom is the token of the snapshot from which the cluster's etcd was founded, or what distinguishes the
	// cluster from an earlier one of the same name; it becomes part of the IDs of founding members. Masters only.
	EtcdFrom string
	// EtcdFoundingToken is the permission to start with an empty disk: EtcdFounding, or the id of the member that was
	// added for this master. Empty for a member that has run. Masters only.
	EtcdFoundingToken string
	// Emulated says that software emulates the processors of the cluster's machines.
	Emulated bool
	// Settings are the operator's.
	Settings Settings
}

// Settings are the operator-wide settings that reach guests. The zero value is valid.
type Settings struct {
	// RegistryDomain is the registry of the node's images, with an optional path. Empty: registry.k8s.io.
	RegistryDomain string
	// RegistryMirrors are hosts, without scheme, that have what the registry has. They are tried in this order, the
	// registry itself last.
	RegistryMirrors []string
	// DockerhubToken is base64 of user:password for the registry, or for Docker Hub while RegistryDomain is the
	// default. Secret.
	DockerhubToken string
	// Proxy is the guests' proxy to the outside.
	Proxy Proxy
	// NTPServers are the time servers. Empty: the image decides.
	NTPServers []string
	// SSOPublicKey is the OpenSSH public key of the CA that signs users' SSH certificates. Empty: none is trusted.
	SSOPublicKey string
	// OIDC is the OIDC provider of clusters that set none.
	OIDC v1alpha1.OIDC
	// NodeTerm is the validity of the certificates of kubelets; zero means a week.
	NodeTerm time.Duration
	// BinaryBaseURL is where a kubelet is downloaded from if the image has none:
	// <url>/v<version>/bin/linux/<arch>/kubelet and the same with .sha256. Empty: https://dl.k8s.io.
	BinaryBaseURL string
	// CNIPluginsBaseURL is where the standard CNI plugins are downloaded from if the image has none:
	// <url>/v<version>/cni-plugins-linux-<arch>-v<version>.tgz and the same with .sha256. Empty: the releases of their
	// project at GitHub.
	CNIPluginsBaseURL string
}

// Proxy is an HTTP proxy between the guests and the outside.
type Proxy struct {
	// HTTP and HTTPS are the proxy's URLs by the scheme of the requested URL. They may contain a password and are
	// secret.
	HTTP, HTTPS string
	// NoProxy are hosts, domains and networks that are reached directly, in addition to those of the cluster itself.
	// The pod network of the management cluster, which contains the guests' addresses, has to be among them.
	NoProxy []string
}

func (p Proxy) isSet() bool { return p.HTTP != "" || p.HTTPS != "" }

func (p Params) master() bool { return p.Node.Role == key.RoleMaster }

// apiServerURL returns how this node reaches the API server. A master uses its own, because it must start when no other
// runs.
func (p Params) apiServerURL() string {
	if p.master() {
		return p.localAPIServerURL()
	}
	return p.APIServerURL
}

// apiServerHost returns the name of the API server on all nodes.
func (p Params) apiServerHost() string {
	u, err := url.Parse(p.APIServerURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// oidc returns the OIDC settings of this cluster: its own or, as a whole, the operator's.
func (p Params) oidc() v1alpha1.OIDC {
	if own := p.Cluster.Kubernetes.API.OIDC; own != nil {
		return *own
	}
	return p.Settings.OIDC
}
