package cloudconfig

import (
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

const (
	// defaultPods is how many pods a node accepts if its network has room: the kubelet's own default.
	defaultPods = 110
	// hostPods is how many pods of a node are expected to use the host's network and need no address.
	hostPods = 10
)

// nodeMask returns the prefix length of each node's part of the pod network: 24 if that leaves room for 16 nodes,
// otherwise the length that does. kube-controller-manager exits if the part is larger than the whole.
func nodeMask(c v1alpha1.Calico) int32 { return max(24, min(c.CIDR+4, 30)) }

// maxPods returns how many pods fit on a node: those for which its part of the pod network has addresses, without those
// of network, gateway and broadcast, and those that need none.
func maxPods(c v1alpha1.Calico) int32 { return min(defaultPods, int32(1)<<(32-nodeMask(c))-3+hostPods) }

// ipv6 reports whether the cluster's first address family is IPv6. The API server advertises an address of that family.
func (p Params) ipv6() bool { return strings.Contains(p.Cluster.Kubernetes.API.ClusterIPRange, ":") }
