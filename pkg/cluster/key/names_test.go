package key

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// TestNames covers the names that the original gave and those that are keyed by node id instead of position.
func TestNames(t *testing.T) {
	for name, test := range map[string]struct{ got, want string }{
		"namespace, service account and role binding": {Namespace("ab1cd"), "ab1cd"},
		"second role binding":                         {PSPBindingName("ab1cd"), "ab1cd-psp"},
		"boot data":                                   {BootDataName(RoleMaster, "ab1cd", "m0aaa"), "master-ab1cd-m0aaa"},
		"deployment":                                  {DeploymentName(RoleWorker, "w0aaa"), "worker-w0aaa"},
		"certificate":                                 {SecretName("ab1cd", "api"), "ab1cd-api"},
		"kubeconfig":                                  {KubeconfigName("ab1cd"), "ab1cd-kubeconfig"},
		"volume claim of etcd":                        {EtcdClaimName("ab1cd", "m0aaa"), "pvc-master-etcd-ab1cd-m0aaa"},
		"directory of etcd":                           {EtcdHostPath("ab1cd", "0123456789abcdef", "m0aaa"), "/home/core/volumes/ab1cd/0123456789abcdef/k8s-master-m0aaa"},
		"directory of etcd without a mark":            {EtcdHostPath("ab1cd", "", "m0aaa"), "/home/core/volumes/ab1cd/k8s-master-m0aaa"},
		"mark of that directory":                      {EtcdMarkOf("ab1cd", EtcdHostPath("ab1cd", "0123456789abcdef", "m0aaa")), "0123456789abcdef"},
		"mark where there is none":                    {EtcdMarkOf("ab1cd", EtcdHostPath("ab1cd", "", "m0aaa")), ""},
		"mark where the original's data is":           {EtcdMarkOf("ab1cd", "/home/core/volumes/ab1cd/k8s-master-vm0"), ""},
		"mark in the path of another cluster":         {EtcdMarkOf("ab1cd", EtcdHostPath("other", "0123456789abcdef", "m0aaa")), ""},
		"mark with parent folders":                    {EtcdMarkOf("ab1cd", "/home/core/volumes/ab1cd/../../etc/k8s-master-m0aaa"), ""},
		"mark behind a detour":                        {EtcdMarkOf("ab1cd", "/home/core/volumes/ab1cd/x/../0123456789abcdef/k8s-master-m0aaa"), ""},
		"mark that is no mark":                        {EtcdMarkOf("ab1cd", "/home/core/volumes/ab1cd/mine/k8s-master-m0aaa"), ""},
		"volume claim of a host volume":               {HostVolumeClaimName("ab1cd", "w0aaa", "data"), "local-pvc-worker-ab1cd-w0aaa-data"},
		"service":                                     {ServiceHost("master", "ab1cd", "mc.local"), "master.ab1cd.svc.mc.local"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.got); diff != "" {
				t.Errorf("another name (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEtcdMark: another key gives another directory, and the mark is valid in status.nodes[].etcdMark.
func TestEtcdMark(t *testing.T) {
	one, other := EtcdMark("one"), EtcdMark("other")
	if one == other || one != EtcdMark("one") || !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(one) {
		t.Errorf("the marks of two keys are %q and %q", one, other)
	}
}

// TestNamesOfJobsFit: the API server would reject longer ones, and would do so when masters are down.
func TestNamesOfJobsFit(t *testing.T) {
	longest, token := strings.Repeat("m", 39), EtcdRestored+"0123456789ab"
	for _, id := range []string{"", longest, "check"} {
		if name := EtcdRestoreName(token, id); len(name) > 63 {
			t.Errorf("%s has %d characters", name, len(name))
		}
	}
	if EtcdRestoreName(token, "check") == EtcdRestoreName(token, "") {
		t.Error("a master has the Job of the check")
	}
}

// TestDomains: the domains of etcd and of workers are derived from that of the API. That an API domain must begin with
// "api." is a rule of the CRD and tested with it.
func TestDomains(t *testing.T) {
	domains := func(change func(*v1alpha1.Cluster)) [3]string {
		var c v1alpha1.Cluster
		c.Kubernetes.API.Domain = "api.x.k8s.example.com"
		change(&c)
		return [3]string{BaseDomain(c.Kubernetes.API.Domain), EtcdDomain(c), WorkerDomain(c)}
	}
	for name, test := range map[string]struct {
		change func(*v1alpha1.Cluster)
		want   [3]string
	}{
		"derived from the API's": {
			func(*v1alpha1.Cluster) {},
			[3]string{"x.k8s.example.com", "etcd.x.k8s.example.com", "worker.x.k8s.example.com"},
		},
		"what the spec says goes first": {
			func(c *v1alpha1.Cluster) {
				c.Etcd.Domain, c.Kubernetes.Kubelet.Domain = "etcd.example.org", "worker.example.org"
			},
			[3]string{"x.k8s.example.com", "etcd.example.org", "worker.example.org"},
		},
		"api inside a name stays": {
			func(c *v1alpha1.Cluster) { c.Kubernetes.API.Domain = "api.api.example.com" },
			[3]string{"api.example.com", "etcd.api.example.com", "worker.api.example.com"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, domains(test.change)); diff != "" {
				t.Errorf("other domains (-want +got):\n%s", diff)
			}
		})
	}
}

func TestServiceIPs(t *testing.T) {
	for name, test := range map[string]struct {
		network string
		n       int
		want    netip.Addr
	}{
		"the API server's":              {"172.31.0.0/16", 1, netip.MustParseAddr("172.31.0.1")},
		"the DNS service's":             {"172.31.0.0/16", 10, netip.MustParseAddr("172.31.0.10")},
		"host bits do not count":        {"172.31.5.7/16", 1, netip.MustParseAddr("172.31.0.1")},
		"IPv6":                          {"fd00:10:96::/112", 10, netip.MustParseAddr("fd00:10:96::a")},
		"over the edge of a byte":       {"10.0.0.252/30", 3, netip.MustParseAddr("10.0.0.255")},
		"the network has no such":       {"10.0.0.252/30", 4, netip.Addr{}},
		"the last network has no such":  {"255.255.255.252/30", 4, netip.Addr{}},
		"malformed":                     {"172.31.0.0", 1, netip.Addr{}},
		"empty":                         {"", 1, netip.Addr{}},
		"an IPv6 network has no such":   {"fd00::/127", 2, netip.Addr{}},
		"the whole of the IPv4 network": {"0.0.0.0/0", 1, netip.MustParseAddr("0.0.0.1")},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, NthServiceIP(test.network, test.n), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("another address (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDNSServiceIPIsTheSpecsElseTheTenth(t *testing.T) {
	var c v1alpha1.Cluster
	c.Kubernetes.API.ClusterIPRange = "172.31.0.0/16"
	derived := DNSServiceIP(c)
	c.Kubernetes.DNS.IP = "172.31.0.53"
	if diff := cmp.Diff([]string{"172.31.0.10", "172.31.0.53"}, []string{derived, DNSServiceIP(c)}); diff != "" {
		t.Errorf("another address (-want +got):\n%s", diff)
	}
}

func TestPaused(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"no annotations":           {nil, false},
		"the original's":           {map[string]string{"operatorkit.giantswarm.io/paused": "true"}, true},
		"Cluster API's":            {map[string]string{"cluster.x-k8s.io/paused": "true"}, true},
		"another value than true":  {map[string]string{"operatorkit.giantswarm.io/paused": "false"}, false},
		"an annotation of another": {map[string]string{"example.org/paused": "true"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Paused(test.annotations)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
