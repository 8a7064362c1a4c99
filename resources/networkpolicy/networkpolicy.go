// Package networkpolicy is the handler of the NetworkPolicy that closes a cluster's node pods off from those of others.
package networkpolicy

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// name of the policy.
const name = "node-pods"

// New makes the handler.
func New() apply.Resource[*cluster.Snapshot] {
	return apply.Resource[*cluster.Snapshot]{Handler: "networkpolicy", Kinds: []client.Object{&networkingv1.NetworkPolicy{}}, Build: build}
}

func build(s *cluster.Snapshot) (apply.Desired, error) {
	return apply.Desired{Objects: []client.Object{&networkingv1.NetworkPolicy{
		ObjectMeta: s.Meta(name),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{key.LabelPodWatcher: key.Operator}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: neighbours()}, outside(s)},
		},
	}}}, nil
}

// neighbours are the cluster itself and every namespace of the management cluster that is not another cluster's.
func neighbours() []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{
		{PodSelector: &metav1.LabelSelector{}},
		{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: key.LabelGSCluster, Operator: metav1.LabelSelectorOpDoesNotExist},
		}}},
	}
}

// outside are clients beyond the management cluster, through node ports and load balancers. Where the pod networks are
// configured they reach everything; where they are not, an address does not tell a client from another cluster's node
// pod, so only what the cluster publishes is open.
func outside(s *cluster.Snapshot) networkingv1.NetworkPolicyIngressRule {
	v6 := func(cidr string) bool { return strings.Contains(cidr, ":") }
	v4 := func(cidr string) bool { return !v6(cidr) }
	rule := networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{
		{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: slices.DeleteFunc(slices.Clone(s.Settings.PodCIDRs), v6)}},
		{IPBlock: &networkingv1.IPBlock{CIDR: "::/0", Except: slices.DeleteFunc(slices.Clone(s.Settings.PodCIDRs), v4)}},
	}}
	if len(s.Settings.PodCIDRs) > 0 {
		return rule
	}
	ports := append([]key.Port{{Port: s.Cluster().Kubernetes.API.SecurePort}}, key.WorkerPorts(s.Config.Spec.KVM)...)
	for _, p := range ports {
		rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{
			Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(p.Port)),
		})
	}
	return rule
}
