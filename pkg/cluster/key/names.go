package key

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// Namespace is the namespace on the management cluster that contains everything of cluster id. Service account and
// cluster role binding have the same name.
func Namespace(id string) string { return id }

// PSPBindingName is the second cluster role binding of the original.
func PSPBindingName(id string) string { return id + "-psp" }

// BootDataName is the name of the ConfigMap and of the Secret with a node's boot data.
func BootDataName(role, id, nodeID string) string { return role + "-" + id + "-" + nodeID }

// DeploymentName is the name of a node's Deployment, and of the Service with the address of a master's etcd member.
func DeploymentName(role, nodeID string) string { return role + "-" + nodeID }

// SecretName is the name of the Secret with one certificate or key of cluster id.
func SecretName(id, name string) string { return id + "-" + name }

// KubeconfigName is the name of the Secret with the kubeconfig of cluster id.
func KubeconfigName(id string) string { return id + "-kubeconfig" }

// EtcdClaimName is the name of the volume claim of a master's etcd. The original used the position in the list, which
// gives a master the data of another one when the list changes.
func EtcdClaimName(id, nodeID string) string { return "pvc-master-etcd-" + id + "-" + nodeID }

// EtcdHostPath is the directory of the host with the data of a master's etcd. The mark of EtcdMark separates it from
// other clusters with the same id; an empty mark gives the directory of clusters that were created by an operator
// without marks.
func EtcdHostPath(id, mark, nodeID string) string {
	return path.Join(EtcdHostDirectories(id, mark), EtcdDirectory(nodeID))
}

// EtcdHostDirectories is the directory of the host that contains those of all masters with a mark.
func EtcdHostDirectories(id, mark string) string { return path.Join(etcdHostRoot, id, mark) }

// EtcdDirectory is the name of the directory of a master's data.
func EtcdDirectory(nodeID string) string { return etcdHostPrefix + nodeID }

// EtcdMark is the mark of a cluster whose Secrets are encrypted with a key in etcd: 16 hexadecimal digits, from which
// the key cannot be derived.
func EtcdMark(encryptionKey string) string {
	sum := sha256.Sum256([]byte("directory of etcd on hosts\n" + encryptionKey))
	return hex.EncodeToString(sum[:8])
}

// EtcdMarkOf returns the mark in what EtcdHostPath returned for a cluster. It is empty for any other path, because
// users may write to the objects that contain paths.
func EtcdMarkOf(id, hostPath string) string {
	mark, node := path.Base(path.Dir(hostPath)), strings.TrimPrefix(path.Base(hostPath), etcdHostPrefix)
	if !etcdMark.MatchString(mark) || hostPath != EtcdHostPath(id, mark, node) {
		return ""
	}
	return mark
}

// RetiredDirectory is the name that the directory of a master's data gets after the master was removed, beside the old
// one.
func RetiredDirectory(nodeID string, left time.Time) string {
	return "retired-" + left.UTC().Format("20060102T150405Z") + "-" + EtcdDirectory(nodeID)
}

// EtcdRetireName is the name of the Job that does something, such as "rename", with the data that a master has left on
// a host. A master may leave several times.
func EtcdRetireName(what, nodeID, host, mark string, left time.Time) string {
	sum := sha256.Sum256([]byte(host + " " + mark + " " + left.UTC().Format(time.RFC3339)))
	return "etcd-" + what + "-" + nodeID + "-" + hex.EncodeToString(sum[:5]) // an id of 39 characters allows no more
}

// etcdMark matches what EtcdMark returns, and what the API server accepts in status.nodes[].etcdMark.
var etcdMark = regexp.MustCompile(`^[0-9a-f]{16}$`)

const (
	etcdHostRoot   = "/home/core/volumes"
	etcdHostPrefix = "k8s-master-"
)

// EtcdSnapshotName is the name of the CronJob that takes snapshots of etcd, and of the Secret that gives it access.
const EtcdSnapshotName = "etcd-snapshot"

// EtcdRestoreName is the name of the Job that replaces a master's data with the snapshot that has a token; without a
// master, of the Job that checks it. It has at most 63 characters, the limit for names of Jobs, even for the longest
// ids, which have 39.
func EtcdRestoreName(token, nodeID string) string {
	if nodeID == "" {
		return "etcd-check-" + token
	}
	return EtcdPlacing + nodeID + "-" + strings.TrimPrefix(token, EtcdRestored)
}

// EtcdPlacing is the prefix of the names of Jobs that replace a master's data with a snapshot, and EtcdRestored the
// prefix of the tokens of such data.
const (
	EtcdPlacing  = "etcd-place-"
	EtcdRestored = "restored"
)

// HostVolumeClaimName is the name of the claim of a worker's host volume.
func HostVolumeClaimName(id, nodeID, mountTag string) string {
	return HostVolumeClaimPrefix(id) + nodeID + "-" + mountTag
}

// HostVolumeClaimPrefix is the prefix of the names of all claims of host volumes of cluster id.
func HostVolumeClaimPrefix(id string) string { return "local-pvc-worker-" + id + "-" }

// ServiceHost is the name of a Service of cluster id inside a management cluster with the given DNS domain.
func ServiceHost(service, id, clusterDomain string) string {
	return service + "." + Namespace(id) + ".svc." + clusterDomain
}

// BaseDomain is the common part of a cluster's domains: the API domain without "api.".
func BaseDomain(apiDomain string) string { return strings.TrimPrefix(apiDomain, "api.") }

// EtcdDomain is the host name of etcd outside the cluster.
func EtcdDomain(c v1alpha1.Cluster) string {
	if c.Etcd.Domain != "" {
		return c.Etcd.Domain
	}
	return "etcd." + BaseDomain(c.Kubernetes.API.Domain)
}

// WorkerDomain is the common name of the certificate "worker".
func WorkerDomain(c v1alpha1.Cluster) string {
	if c.Kubernetes.Kubelet.Domain != "" {
		return c.Kubernetes.Kubelet.Domain
	}
	return "worker." + BaseDomain(c.Kubernetes.API.Domain)
}

// NthServiceIP returns the n-th address of the Service network: 1 is the API server's, 10 by convention the DNS
// service's. It returns the zero Addr if the network is malformed or has no such address.
func NthServiceIP(clusterIPRange string, n int) netip.Addr {
	prefix, err := netip.ParsePrefix(clusterIPRange)
	if err != nil {
		return netip.Addr{}
	}
	addr := prefix.Masked().Addr()
	for range n {
		addr = addr.Next()
	}
	if !prefix.Contains(addr) {
		return netip.Addr{}
	}
	return addr
}

// DNSServiceIP is the address of the cluster's DNS service.
func DNSServiceIP(c v1alpha1.Cluster) string {
	if c.Kubernetes.DNS.IP != "" {
		return c.Kubernetes.DNS.IP
	}
	return NthServiceIP(c.Kubernetes.API.ClusterIPRange, 10).String()
}

// Paused reports whether the annotations forbid all writes.
func Paused(annotations map[string]string) bool {
	return annotations[AnnotationPaused] == "true" || annotations[AnnotationClusterAPIPaused] == "true"
}

// TerminatesUnhealthy reports whether annotations of a KVMConfig request the replacement of unhealthy nodes. Their
// presence is enough, as with the original.
func TerminatesUnhealthy(annotations map[string]string) bool {
	_, set := annotations[AnnotationTerminateUnhealthy]
	_, setAlpha := annotations[AnnotationTerminateUnhealthyAlpha]
	return set || setAlpha
}

// PodNetwork is the network of the cluster's pods in CIDR notation.
func PodNetwork(c v1alpha1.Cluster) string {
	return fmt.Sprintf("%s/%d", c.Calico.Subnet, c.Calico.CIDR)
}
