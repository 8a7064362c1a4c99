// Package networkpolicy is the handler of the NetworkPolicies that isolate a cluster's pods from other clusters and
// from the management cluster that they run in.
package networkpolicy

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// Names of the policies.
const (
	// nodePods limits what reaches node pods.
	nodePods = "node-pods"
	// guests limits what node pods, and so the guests, reach.
	guests = "guests"
	// etcdJobs is for the Jobs that take and restore snapshots of etcd.
	etcdJobs = "etcd-jobs"
)

// New returns the handler.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{Handler: "networkpolicy", Kinds: []client.Object{&networkingv1.NetworkPolicy{}}, Build: build}
}

func build(s *state.Cluster) (apply.Desired, error) {
	desired := apply.Desired{Objects: []client.Object{ingress(s), jobs(s)}}
	if !s.Settings.Egress.Open {
		desired.Objects = append(desired.Objects, egress(s))
	}
	return desired, nil
}

func ingress(s *state.Cluster) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: s.Meta(nodePods),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{key.LabelPodWatcher: key.Operator}, MatchExpressions: apps(key.RoleMaster, key.RoleWorker)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: neighbors()}, outside(s)},
		},
	}
}

// apps selects pods by their label app.
func apps(values ...string) []metav1.LabelSelectorRequirement {
	return []metav1.LabelSelectorRequirement{{Key: key.LabelApp, Operator: metav1.LabelSelectorOpIn, Values: values}}
}

// neighbors are the cluster itself and every namespace of the management cluster that does not belong to another
// cluster.
func neighbors() []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{
		{PodSelector: &metav1.LabelSelector{}},
		{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: key.LabelGSCluster, Operator: metav1.LabelSelectorOpDoesNotExist},
		}}},
	}
}

// outside allows clients outside of the management cluster, through node ports and load balancers. If the pod networks
// are configured, these clients reach every port. Otherwise an address does not distinguish a client from another
// cluster's node pod, so only the published ports are open.
func outside(s *state.Cluster) networkingv1.NetworkPolicyIngressRule {
	var pods []netip.Prefix
	for _, cidr := range s.Settings.PodCIDRs {
		if network, err := state.Network(cidr); err == nil {
			pods = append(pods, network)
		}
	}
	rule := networkingv1.NetworkPolicyIngressRule{From: everywhereBut(pods)}
	if len(s.Settings.PodCIDRs) > 0 {
		return rule
	}
	ports := append([]key.Port{{Port: s.Cluster().Kubernetes.API.SecurePort}}, key.WorkerPorts(s.Config.Spec.KVM)...)
	for _, p := range ports {
		rule.Ports = append(rule.Ports, port(corev1.ProtocolTCP, p.Port))
	}
	return rule
}

// everywhereBut returns all addresses of both families except those of the networks.
func everywhereBut(networks []netip.Prefix) []networkingv1.NetworkPolicyPeer {
	v4, v6 := &networkingv1.IPBlock{CIDR: "0.0.0.0/0"}, &networkingv1.IPBlock{CIDR: "::/0"}
	for _, network := range networks {
		block := v6
		if network.Addr().Is4() {
			block = v4
		}
		block.Except = append(block.Except, network.String())
	}
	return []networkingv1.NetworkPolicyPeer{{IPBlock: v4}, {IPBlock: v6}}
}

func port(protocol corev1.Protocol, number int32) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: ptr.To(protocol), Port: ptr.To(intstr.FromInt32(number))}
}
