package networkpolicy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// Ports of DNS. The DNS pods of OpenShift listen on the second one. A plugin that enforces policies after a pod's
// address has replaced the Service's address sees that port.
const (
	portDNS    = 53
	portDNSPod = 5353
)

// egress limits what node pods may reach. A guest has its pod's address, so this limits every pod of the workload
// cluster.
func egress(s *state.Cluster) *networkingv1.NetworkPolicy {
	rules := []networkingv1.NetworkPolicyEgressRule{own(s)}
	rules = append(rules, nodePorts(s)...)
	rules = append(rules, dns())
	rules = append(rules, helpers(s)...)
	rules = append(rules, networkingv1.NetworkPolicyEgressRule{To: world(s)})
	return &networkingv1.NetworkPolicy{
		ObjectMeta: s.Meta(guests),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchExpressions: apps(key.RoleMaster, key.RoleWorker)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress:      rules,
		},
	}
}

// own allows the cluster's pods and the addresses of its Services. Plugins may enforce a policy before or after a pod's
// address replaces that of a Service.
func own(s *state.Cluster) networkingv1.NetworkPolicyEgressRule {
	var addresses []string
	for _, service := range services(s) {
		addresses = append(addresses, service.Spec.ClusterIPs...)
		for _, balancer := range service.Status.LoadBalancer.Ingress {
			addresses = append(addresses, balancer.IP)
		}
	}
	rule := networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}
	slices.Sort(addresses)
	for _, text := range slices.Compact(addresses) {
		if address, err := netip.ParseAddr(text); err == nil {
			rule.To = append(rule.To, block(netip.PrefixFrom(address, address.BitLen())))
		}
	}
	return rule
}

// services returns the Services of the cluster that exist. The KVMConfig is not enough: an address or a port is only
// opened if the API server has assigned it to the cluster's Service.
func services(s *state.Cluster) []*corev1.Service {
	return slices.DeleteFunc([]*corev1.Service{s.MasterService, s.WorkerService, s.PublishedService}, func(service *corev1.Service) bool { return service == nil })
}

// nodePorts allows the ports on hosts that lead to the cluster itself.
func nodePorts(s *state.Cluster) []networkingv1.NetworkPolicyEgressRule {
	var rule networkingv1.NetworkPolicyEgressRule
	for _, service := range services(s) {
		for _, p := range service.Spec.Ports {
			if p.NodePort != 0 {
				rule.Ports = append(rule.Ports, port(p.Protocol, p.NodePort))
			}
		}
	}
	for _, cidr := range s.Settings.Egress.HostCIDRs {
		if network, err := state.Network(cidr); err == nil {
			rule.To = append(rule.To, block(network))
		}
	}
	if len(rule.Ports) == 0 || len(rule.To) == 0 {
		return nil
	}
	return []networkingv1.NetworkPolicyEgressRule{rule}
}

// dns allows DNS everywhere: as a Service, as pods of any name, on the hosts or at a link-local address (NodeLocal
// DNSCache).
func dns() networkingv1.NetworkPolicyEgressRule {
	return networkingv1.NetworkPolicyEgressRule{Ports: []networkingv1.NetworkPolicyPort{
		port(corev1.ProtocolUDP, portDNS), port(corev1.ProtocolTCP, portDNS), port(corev1.ProtocolUDP, portDNSPod), port(corev1.ProtocolTCP, portDNSPod),
	}}
}

// helpers allows the servers that the settings configure for guests.
func helpers(s *state.Cluster) []networkingv1.NetworkPolicyEgressRule {
	var rules []networkingv1.NetworkPolicyEgressRule
	for _, h := range s.Settings.Helpers() {
		protocol := corev1.ProtocolTCP
		if h.UDP {
			protocol = corev1.ProtocolUDP
		}
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{
			To:    []networkingv1.NetworkPolicyPeer{block(netip.PrefixFrom(h.Address, h.Address.BitLen()))},
			Ports: []networkingv1.NetworkPolicyPort{port(protocol, h.Port)},
		})
	}
	return rules
}

// world allows the Internet and the configured exceptions in the management cluster. If the pod networks of the
// management cluster are unknown, its pods are not blocked either, including with plugins for which a network never
// contains pods.
func world(s *state.Cluster) []networkingv1.NetworkPolicyPeer {
	peers := everywhereBut(s.Settings.Forbidden())
	for _, network := range s.Settings.Exceptions() {
		peers = append(peers, block(network))
	}
	if len(s.Settings.PodCIDRs) == 0 {
		peers = append(peers, networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}})
	}
	return peers
}

func block(network netip.Prefix) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: network.String()}}
}

// jobs isolates the Jobs that take and restore snapshots: nothing reaches them, and they only reach etcd and DNS. Their
// hosts mount the volumes.
func jobs(s *state.Cluster) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: s.Meta(etcdJobs),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchExpressions: apps(key.EtcdSnapshotName, state.AppEtcdRestore)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{
				{To: own(s).To, Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolTCP, key.PortEtcdClient)}}, dns(),
			},
		},
	}
}
