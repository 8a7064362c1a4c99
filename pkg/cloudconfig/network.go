package cloudconfig

import (
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

const (
	// defaultPods is how many pods a node takes where its network has room: the kubelet's own default.
	defaultPods = 110
	// hostPods is how many pods of a node are expected to use the host's network and need no address.
	hostPods = 10
)

// nodeMask is the prefix length of each node's part of the pod network: 24 where that leaves room for 16 nodes, else what
// does. kube-controller-manager exits when the part is larger than the whole.
func nodeMask(c v1alpha1.Calico) int32 { return max(24, min(c.CIDR+4, 30)) }

// maxPods is how many pods fit on a node: those that its part of the pod network has addresses for, without those of
// network, gateway and broadcast, and those that need none.
func maxPods(c v1alpha1.Calico) int32 { return min(defaultPods, int32(1)<<(32-nodeMask(c))-3+hostPods) }

// ipv6 says whether the cluster's first address family is IPv6. The API server advertises an address of that family.
func (p Params) ipv6() bool { return strings.Contains(p.Cluster.Kubernetes.API.ClusterIPRange, ":") }
