package networkpolicy_test

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/networkpolicy"
)

// target is the destination of a packet. For a pod, it has the labels of the pod and of its namespace.
type target struct {
	address        string
	pod, namespace map[string]string
	port           int32
	protocol       corev1.Protocol
}

const id = "ab1cd"

var (
	ownNamespace = map[string]string{"kubernetes.io/metadata.name": id}
	foreign      = map[string]string{"kubernetes.io/metadata.name": "monitoring"}
	known        = state.Settings{
		PodCIDRs: []string{"10.244.0.0/16", "fd00:10:244::/56"}, ServiceCIDRs: []string{"10.96.0.0/12", "fd00:10:96::/112"},
		Egress: state.Egress{HostCIDRs: []string{"192.168.0.0/24", "fd00:192::/64"}, Allowed: []string{"192.168.0.9", "10.96.7.0/24"}},
	}
)

// TestWhatGuestsReach evaluates the rendered policies as the API's documentation defines them. A packet passes if a
// rule of a policy that selects the pod allows it, or if no policy selects the pod.
func TestWhatGuestsReach(t *testing.T) {
	pod := func(address string, labels, namespace map[string]string) target {
		return target{address: address, pod: labels, namespace: namespace, port: 443}
	}
	for name, test := range map[string]struct {
		to   target
		want bool // with all networks known
		// unknown is the result when no network is known.
		unknown bool
	}{
		"a node pod of the cluster":                           {pod("10.244.1.9", map[string]string{"app": "master"}, ownNamespace), true, true},
		"the Service master before its address is replaced":   {target{address: "10.96.3.3", port: 443}, true, true},
		"the Service master by IPv6":                          {target{address: "fd00:10:96::33", port: 443}, true, true},
		"the load balancer of Service api":                    {target{address: "192.168.0.77", port: 443}, true, true},
		"the node port of Service api":                        {target{address: "192.168.0.5", port: 31443}, true, true},
		"the node port of Service worker":                     {target{address: "192.168.0.5", port: 30100}, true, true},
		"a node port that the KVMConfig asks for and has not": {target{address: "192.168.0.5", port: 10250}, false, true},
		"a pod of the management cluster":                     {pod("10.244.2.9", nil, foreign), false, true},
		"a pod of the management cluster by IPv6":             {pod("fd00:10:244::9", nil, foreign), false, true},
		"a Service of the management cluster":                 {target{address: "10.96.0.1", port: 443}, false, true},
		"a Service by IPv6":                                   {target{address: "fd00:10:96::1", port: 443}, false, true},
		"the kubelet of a host":                               {target{address: "192.168.0.5", port: 10250}, false, true},
		"the kubelet of a host by IPv6":                       {target{address: "fd00:192::5", port: 10250}, false, true},
		"metadata of a cloud":                                 {target{address: "169.254.169.254", port: 80}, false, false},
		"metadata of AWS by IPv6":                             {target{address: "fd00:ec2::254", port: 80}, false, false},
		"metadata of Google by IPv6":                          {target{address: "fd20:ce::254", port: 80}, false, false},
		"metadata of Alibaba":                                 {target{address: "100.100.100.200", port: 80}, false, false},
		"credentials of pods of AWS by IPv6":                  {target{address: "fd00:ec2::23", port: 80}, false, false},
		"configuration of machines of Azure":                  {target{address: "168.63.129.16", port: 80}, false, false},
		"metadata of Oracle by IPv6":                          {target{address: "fd00:c1::a9fe:a9fe", port: 80}, false, false},
		"metadata of Oracle, classic":                         {target{address: "192.0.0.192", port: 80}, false, false},
		"metadata of Scaleway by IPv6":                        {target{address: "fd00:42::42", port: 80}, false, false},
		"DNS as a Service":                                    {target{address: "10.96.0.10", port: 53, protocol: corev1.ProtocolUDP}, true, true},
		"DNS as pods":                                         {target{address: "10.244.0.2", pod: map[string]string{}, namespace: foreign, port: 53, protocol: corev1.ProtocolTCP}, true, true},
		"DNS at a link-local address":                         {target{address: "169.254.20.10", port: 53, protocol: corev1.ProtocolUDP}, true, true},
		"another port of the DNS Service":                     {target{address: "10.96.0.10", port: 9153}, false, true},
		"the internet":                                        {target{address: "198.51.100.7", port: 443}, true, true},
		"the internet by IPv6":                                {target{address: "2001:db8::7", port: 443}, true, true},
		"a private network that is not the cluster's":         {target{address: "10.1.0.1", port: 443}, true, true},
		"an address that is allowed":                          {target{address: "192.168.0.9", port: 5000}, true, true},
		"a network that is allowed":                           {target{address: "10.96.7.3", port: 5000}, true, true},
		"the proxy of the settings on a host":                 {target{address: "192.168.0.8", port: 3128}, true, true},
		"another port of the host with the proxy":             {target{address: "192.168.0.8", port: 22}, false, true},
		"the time server of the settings":                     {target{address: "192.168.0.6", port: 123, protocol: corev1.ProtocolUDP}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			for role := range map[string]bool{"master": true, "worker": true} {
				guest := map[string]string{"app": role, "kvm-operator.giantswarm.io/pod-watcher": "kvm-operator"}
				if got := passes(t, policies(t, known), guest, test.to); got != test.want {
					t.Errorf("%s: passes is %t, want %t", role, got, test.want)
				}
				if got := passes(t, policies(t, state.Settings{}), guest, test.to); got != test.unknown {
					t.Errorf("%s, without settings: passes is %t, want %t", role, got, test.unknown)
				}
				if !passes(t, policies(t, state.Settings{Egress: state.Egress{Open: true}}), guest, test.to) {
					t.Errorf("%s, with service.egress.restricted=false: does not pass", role)
				}
			}
		})
	}
}

// TestWhatJobsOfEtcdReach: with any settings, the Jobs only reach etcd and DNS.
func TestWhatJobsOfEtcdReach(t *testing.T) {
	for name, test := range map[string]struct {
		to   target
		want bool
	}{
		"etcd of a master":                    {target{address: "10.244.1.9", pod: map[string]string{"app": "master"}, namespace: ownNamespace, port: 2379}, true},
		"etcd by the Service":                 {target{address: "10.96.3.3", port: 2379}, true},
		"the API by the Service":              {target{address: "10.96.3.3", port: 443}, false},
		"DNS":                                 {target{address: "10.96.0.10", port: 53, protocol: corev1.ProtocolUDP}, true},
		"the internet":                        {target{address: "198.51.100.7", port: 443}, false},
		"a Service of the management cluster": {target{address: "10.96.0.1", port: 443}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, app := range []string{"etcd-snapshot", state.AppEtcdRestore} {
				job := map[string]string{"app": app, "kvm-operator.giantswarm.io/pod-watcher": "kvm-operator"}
				for _, settings := range []state.Settings{known, {}, {Egress: state.Egress{Open: true}}} {
					if got := passes(t, policies(t, settings), job, test.to); got != test.want {
						t.Errorf("%s: passes is %t, want %t", app, got, test.want)
					}
				}
			}
		})
	}
}

// policies returns the policies of a cluster whose Services exist.
func policies(t *testing.T, settings state.Settings) []*networkingv1.NetworkPolicy {
	t.Helper()
	if len(settings.PodCIDRs) > 0 {
		settings.Guest = cloudconfig.Settings{Proxy: cloudconfig.Proxy{HTTP: "http://192.168.0.8:3128"}, NTPServers: []string{"192.168.0.6", "ntp.example.org"}}
	}
	config := fixture.MakeCluster(id).Workers(1).Obj()
	config.Spec.KVM.PortMappings = []v1alpha1.PortMapping{{Name: "http", NodePort: 10250, TargetPort: 30010}} // which the API server rejects
	service := func(nodePort int32, addresses ...string) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: addresses, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 443, NodePort: nodePort}}}}
	}
	published := service(31443, "10.96.3.4")
	published.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.168.0.77"}, {Hostname: "lb.example.org"}}
	s := &state.Cluster{
		Config: config, Settings: settings, MasterService: service(0, "10.96.3.3", "fd00:10:96::33"), WorkerService: service(30100, "10.96.3.5"), PublishedService: published,
	}
	desired, err := networkpolicy.New().Build(s)
	if err != nil {
		t.Fatal(err)
	}
	var list []*networkingv1.NetworkPolicy
	for _, object := range desired.Objects {
		list = append(list, object.(*networkingv1.NetworkPolicy))
	}
	return list
}

func passes(t *testing.T, policies []*networkingv1.NetworkPolicy, from map[string]string, to target) bool {
	t.Helper()
	selected := false
	for _, p := range policies {
		if !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) || !selects(t, &p.Spec.PodSelector, from) {
			continue
		}
		selected = true
		for _, rule := range p.Spec.Egress {
			if opens(rule.Ports, to) && leadsTo(t, rule.To, to) {
				return true
			}
		}
	}
	return !selected
}

func opens(ports []networkingv1.NetworkPolicyPort, to target) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		protocol := to.protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		return ptr.Deref(p.Protocol, corev1.ProtocolTCP) == protocol && p.Port.IntVal == to.port
	})
}

func leadsTo(t *testing.T, peers []networkingv1.NetworkPolicyPeer, to target) bool {
	t.Helper()
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		if p.IPBlock != nil {
			return within(t, p.IPBlock.CIDR, to.address) && !slices.ContainsFunc(p.IPBlock.Except, func(cidr string) bool { return within(t, cidr, to.address) })
		}
		if to.namespace == nil {
			return false
		}
		if p.NamespaceSelector == nil {
			return to.namespace["kubernetes.io/metadata.name"] == id && selects(t, p.PodSelector, to.pod)
		}
		return selects(t, p.NamespaceSelector, to.namespace) && (p.PodSelector == nil || selects(t, p.PodSelector, to.pod))
	})
}

func within(t *testing.T, cidr, address string) bool {
	t.Helper()
	return netip.MustParsePrefix(cidr).Contains(netip.MustParseAddr(address))
}

func selects(t *testing.T, selector *metav1.LabelSelector, set map[string]string) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(labels.Set(set))
}
