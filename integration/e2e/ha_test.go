package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// silence is how long the API may not answer when a machine dies: etcd elects a leader and endpoints follow, on emulated
	// processors that are twice overbooked.
	silence = 2 * time.Minute
	// answering is how long one request may take.
	answering = 10 * time.Second
)

// TestThreeMastersSurviveTheDeathOfAnyOne covers F-26 with machines that form a cluster: three masters are one etcd cluster, whose API answers while any of their
// machines is dead, and which is whole again once that is back.
func TestThreeMastersSurviveTheDeathOfAnyOne(t *testing.T) {
	l := setUp(t, 3, 1)
	masters := []string{"m1", "m2", "m3"}
	if err := l.Apply(l.ctx, manifest(id, masters, nil)); err != nil {
		t.Fatal(err)
	}
	l.awaitReady(len(masters))
	l.oneEtcd(len(masters))
	writer := l.newWriter()
	for _, master := range masters {
		t.Logf("the machine of master %s is killed", master)
		before := writer.written.Load()
		l.killMachine(master)
		l.eventually(silence, func() error {
			if writer.written.Load() < before+3 {
				return fmt.Errorf("nothing is written while master %s is dead", master)
			}
			return nil
		})
		l.awaitDown(master)
		l.awaitReady(len(masters))
		l.oneEtcd(len(masters))
	}
	l.reboots(masters[0])
	writer.stop()
	t.Logf("%d writes, the longest pause between two was %s", writer.written.Load(), writer.longest)
	if writer.longest > silence {
		t.Errorf("the API was silent for %s, want %s at most", writer.longest, silence)
	}
}

// reboots covers F-27: a guest that reboots keeps its runner and comes back under the same name.
func (l *life) reboots(master string) {
	l.t.Helper()
	l.t.Logf("the guest of master %s reboots", master)
	pod := func() string {
		return l.management("--namespace="+id, "get", "pods", "--selector=node="+master,
			"--output=jsonpath={.items[*].metadata.name} {.items[*].status.containerStatuses[*].restartCount}")
	}
	before := pod()
	name, _, _ := strings.Cut(before, " ")
	boot := func() string {
		return l.workload("", "get", "node", name, "--output=jsonpath={.status.nodeInfo.bootID}")
	}
	first := boot()
	l.management("--namespace="+id, "exec", name, "--", "/opt/kvm-operator/kvm-operator", "runner", "console", "--type=systemctl reboot")
	l.eventually(patience, func() error {
		if boot() == first {
			return fmt.Errorf("Node %s has not booted again", name)
		}
		return nil
	})
	l.awaitReady(3)
	if after := pod(); after != before {
		l.t.Errorf("the pod and its restarts were %q and are %q", before, after)
	}
}

// killMachine ends the QEMU of a node at once, as a power failure does.
func (l *life) killMachine(node string) {
	l.t.Helper()
	for _, host := range l.Cluster.Nodes() {
		if _, err := host.Exec(l.ctx, "pkill", "-KILL", "-f", "^[^ ]*qemu-system[^ ]* .*guest=master-"+node+"-"); err == nil {
			return
		}
	}
	l.t.Fatalf("no host runs the machine of master %s", node)
}

// awaitDown waits until the operator knows that a node is not Ready.
func (l *life) awaitDown(node string) {
	l.t.Helper()
	l.eventually(patience, func() error {
		phase := l.management("get", "kvmconfig", id, fmt.Sprintf(`--output=jsonpath={.status.nodes[?(@.id=="%s")].phase}`, node))
		if phase == "Ready" {
			return fmt.Errorf("master %s is dead and said to be Ready", node)
		}
		return nil
	})
}

// oneEtcd says that each master's API server, and so its etcd, knows what was written through another.
func (l *life) oneEtcd(members int) {
	l.t.Helper()
	addresses := strings.Fields(l.management("--namespace="+id, "get", "pods", "--selector=app=master", "--output=jsonpath={.items[*].status.podIP}"))
	if len(addresses) != members {
		l.t.Fatalf("there are masters at %v, want %d", addresses, members)
	}
	var each []kubernetes.Interface
	for _, address := range addresses {
		local, err := l.Cluster.Node(0).Forward(l.ctx, address+":443")
		if err != nil {
			l.t.Fatal(err)
		}
		each = append(each, l.client("https://"+local))
	}
	for i, client := range each {
		written, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(l.ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "one-etcd-"},
		}, metav1.CreateOptions{})
		if err != nil {
			l.t.Fatal(err)
		}
		next := each[(i+1)%len(each)]
		if _, err := next.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(l.ctx, written.Name, metav1.GetOptions{}); err != nil {
			l.t.Fatalf("what was written to %s is not known to its neighbour: %s", addresses[i], err)
		}
	}
}

// client asks the workload cluster's API; server, if not empty, is the way there.
func (l *life) client(server string) kubernetes.Interface {
	l.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags(server, l.kubeconfig)
	if err != nil {
		l.t.Fatal(err)
	}
	config.Timeout = answering
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		l.t.Fatal(err)
	}
	return client
}

// writer writes to the workload cluster all the time.
type writer struct {
	written atomic.Int64
	longest time.Duration // between two writes; to be read after stop
	cancel  context.CancelFunc
	done    chan struct{}
}

func (l *life) newWriter() *writer {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.ctx)
	w := &writer{cancel: cancel, done: make(chan struct{})}
	client := l.client("")
	go func() {
		defer close(w.done)
		for last := time.Now(); ctx.Err() == nil; {
			_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "beat-"},
			}, metav1.CreateOptions{})
			if err == nil {
				w.longest, last = max(w.longest, time.Since(last)), time.Now()
				w.written.Add(1)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	l.t.Cleanup(w.stop)
	return w
}

func (w *writer) stop() {
	w.cancel()
	<-w.done
}
