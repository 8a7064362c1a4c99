package addons_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
)

const (
	flannelName      = "flannel"
	flannelNamespace = "kube-flannel"
	netConf          = `{"Network": "10.244.0.0/16", "EnableNFTables": %t, "Backend": {"Type": "%s"}}`
)

func TestFlannelTellsItsFlagsAndItsVersion(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
		fail bool
	}{
		"help":             {[]string{"--help"}, "-ip-masq", false},
		"its version":      {[]string{"--version"}, "v0.28.4", false},
		"no other store":   {[]string{"--ip-masq"}, "start it with --kube-subnet-mgr", true},
		"no such flag":     {[]string{"--etcd-endpoints=x"}, "flag provided but not defined", true},
		"no API server":    {[]string{"--kube-subnet-mgr"}, "asking the API server for nodes", true},
		"a resync of none": {[]string{"--kube-subnet-mgr", "--iptables-resync=0"}, "--iptables-resync", true},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			output, err := exec.CommandContext(t.Context(), tool(t, flannelName), test.args...).CombinedOutput()
			if (err != nil) != test.fail || !strings.Contains(string(output), test.want) {
				t.Errorf("got %v and\n%s\nwant %s", err, output, test.want)
			}
		})
	}
}

// flannelNode is a host of a pod network. Its flanneld is started as upstream's manifest starts it.
type flannelNode struct {
	*podnet.Pod
	name, directory string
	output          *console
	daemon          *exec.Cmd
}

// TestFlannelConnectsHosts starts flanneld on two hosts with the permissions of its manifest. Packets pass between the
// ends of the tunnel, and the CNI plugin's file has the expected content.
func TestFlannelConnectsHosts(t *testing.T) {
	cluster := startCluster(t)
	admin := newClient(t, cluster.RESTConfig())
	create(t, admin, flannelRights()...)
	for sentence, nftables := range map[string]bool{"with iptables": false, "with nftables": true} {
		t.Run(sentence, func(t *testing.T) {
			host := podnet.NewHost(t)
			api := serveAPI(t, host, cluster)
			// Nodes and pods of both runs exist at the same time.
			prefix := strings.ReplaceAll(sentence, " ", "-")
			first := startFlannel(t, admin, host, api, prefix+"-first", "10.244.1.0/24", nftables)
			second := startFlannel(t, admin, host, api, prefix+"-second", "10.244.2.0/24", nftables)
			first.awaitSubnetFile(t, "10.244.1.1/24")
			second.awaitSubnetFile(t, "10.244.2.1/24")
			for node, other := range map[*flannelNode]string{first: "10.244.2.0", second: "10.244.1.0"} {
				await(t, node.name+" reaches the other host", func(ctx context.Context) error {
					output, err := node.CommandContext(ctx, "ping", "-c1", "-W1", other).CombinedOutput()
					if err != nil {
						return fmt.Errorf("%w: %s", err, output)
					}
					return nil
				})
				await(t, node.name+" masquerades", func(context.Context) error { return node.masquerades(t, nftables) })
				node.awaitReported(t, admin)
				node.stop(t)
			}
			for _, name := range []string{first.name, second.name} {
				if err := admin.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestFlannelSaysWhichBackendItHas(t *testing.T) {
	cluster := startCluster(t)
	admin := newClient(t, cluster.RESTConfig())
	create(t, admin, flannelRights()...)
	host := podnet.NewHost(t)
	node := prepareFlannel(t, admin, host, serveAPI(t, host, cluster), "alone", "10.244.1.0/24")
	writeFile(t, filepath.Join(node.directory, "net-conf.json"), fmt.Sprintf(netConf, true, "host-gw"))
	err := node.daemon.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(node.output.String(), "there is vxlan only") {
		t.Errorf("got %v and\n%s", err, node.output)
	}
}

// flannelRights returns the objects that flannel's manifest creates before its pods.
func flannelRights() []client.Object {
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: flannelNamespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: flannelName, Namespace: flannelNamespace}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: flannelName}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: flannelName},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: flannelName},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: flannelName, Namespace: flannelNamespace}},
		},
	}
}

func startCluster(t *testing.T) *managementcluster.Cluster {
	t.Helper()
	cluster, err := managementcluster.Start(t.Context(), managementcluster.Options{Output: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	log.SetLogger(logr.Discard())
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// serveAPI makes the API server, which listens on loopback, reachable from the hosts for flannel's ServiceAccount.
func serveAPI(t *testing.T, host *podnet.Host, cluster *managementcluster.Cluster) string {
	t.Helper()
	config, err := cluster.RESTConfigFor("system:serviceaccount:"+flannelNamespace+":"+flannelName, "system:authenticated")
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := host.Listen(t.Context(), "tcp4", podnet.HostAddress.String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: proxy}}
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server.URL
}

func startFlannel(t *testing.T, admin client.Client, host *podnet.Host, api, name, podCIDR string, nftables bool) *flannelNode {
	t.Helper()
	node := prepareFlannel(t, admin, host, api, name, podCIDR)
	writeFile(t, filepath.Join(node.directory, "net-conf.json"), fmt.Sprintf(netConf, nftables, "vxlan"))
	if err := node.daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if node.daemon.ProcessState == nil {
			_ = node.daemon.Process.Kill()
			_ = node.daemon.Wait()
		}
		if t.Failed() {
			t.Logf("flanneld on %s:\n%s", name, node.output)
		}
	})
	return node
}

// prepareFlannel creates a host with its Node, the pod that flanneld runs as, and the command that starts it.
func prepareFlannel(t *testing.T, admin client.Client, host *podnet.Host, api, name, podCIDR string) *flannelNode {
	t.Helper()
	// Kubelets annotate their Nodes. flannel 0.28 panics on a Node without annotations.
	kubelets := map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	create(t, admin,
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: kubelets},
			Spec:       corev1.NodeSpec{PodCIDR: podCIDR, PodCIDRs: []string{podCIDR}},
		},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: flannelNamespace},
			Spec: corev1.PodSpec{
				NodeName: name, ServiceAccountName: flannelName, Containers: []corev1.Container{{Name: "kube-flannel", Image: flannelName}},
			},
		})
	node := &flannelNode{Pod: host.NewPod(t, podnet.PodOptions{}), name: name, directory: t.TempDir(), output: &console{}}
	node.daemon = node.Command(tool(t, flannelName), "--ip-masq", "--kube-subnet-mgr", "--kube-api-url="+api,
		"--net-config-path="+filepath.Join(node.directory, "net-conf.json"), "--subnet-file="+filepath.Join(node.directory, "subnet.env"))
	node.daemon.Env = append(os.Environ(), "POD_NAME="+name, "POD_NAMESPACE="+flannelNamespace, "EVENT_QUEUE_DEPTH=5000")
	node.daemon.Stdout, node.daemon.Stderr = node.output, node.output
	return node
}

func (n *flannelNode) awaitSubnetFile(t *testing.T, subnet string) {
	t.Helper()
	path := filepath.Join(n.directory, "subnet.env")
	await(t, n.name, func(context.Context) error {
		_, err := os.Stat(path)
		return err
	})
	want := "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=" + subnet + "\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
	if diff := cmp.Diff(want, readFile(t, path)); diff != "" {
		t.Error(diff)
	}
}

// masquerades returns an error if pods of the host would send packets with their own addresses.
func (n *flannelNode) masquerades(t *testing.T, nftables bool) error {
	t.Helper()
	command, want := []string{"iptables", "-t", "nat", "-S", "FLANNEL-POSTRTG"}, "! -d 224.0.0.0/4"
	if nftables {
		command, want = []string{"nft", "list", "ruleset"}, "ip daddr != 224.0.0.0/4"
	}
	output, err := n.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput()
	if err != nil || !strings.Contains(string(output), want) {
		return errors.Join(err, fmt.Errorf("%v lacks %q:\n%s", command, want, output))
	}
	return nil
}

// awaitReported waits until the Node reports its address and a working network.
func (n *flannelNode) awaitReported(t *testing.T, admin client.Client) {
	t.Helper()
	await(t, n.name, func(ctx context.Context) error {
		var node corev1.Node
		if err := admin.Get(ctx, client.ObjectKey{Name: n.name}, &node); err != nil {
			return err
		}
		if address := node.Annotations["flannel.alpha.coreos.com/public-ip"]; address != n.Address.String() {
			return fmt.Errorf("its public IP is %q, want %s", address, n.Address)
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeNetworkUnavailable && condition.Status == corev1.ConditionFalse {
				return nil
			}
		}
		return fmt.Errorf("its network is not said to be up: %v", node.Status.Conditions)
	})
}

// stop ends flanneld as a kubelet does.
func (n *flannelNode) stop(t *testing.T) {
	t.Helper()
	if err := n.daemon.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := n.daemon.Wait(); err != nil {
		t.Errorf("flanneld on %s: %v", n.name, err)
	}
}
