package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kvm-operator/kvm-operator/integration/harness/stage"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

const (
	// silence is how long the API may not answer after a machine dies. In that time etcd elects a leader and endpoints
	// are updated, on emulated CPUs that are overcommitted by two.
	silence = 2 * time.Minute
	// answering is how long one request may take.
	answering = 10 * time.Second
)

// TestThreeMastersSurviveTheDeathOfAnyOne runs a cluster of real machines: three masters are one etcd cluster, which is
// restored from a snapshot. Its API answers while any one of their machines is dead, and the cluster is healthy again
// once the machine is back. The API also answers while another master replaces one.
func TestThreeMastersSurviveTheDeathOfAnyOne(t *testing.T) {
	l := setUp(t, stage.Options{Masters: 4, Workers: 1, Snapshots: true})
	masters := []string{"m1", "m2", "m3"}
	if err := l.Apply(l.ctx, manifest(id, masters, nil)); err != nil {
		l.t.Fatal(err)
	}
	l.awaitReady(len(masters))
	l.oneEtcd(len(masters))
	l.isRestored(len(masters), len(masters))
	writer := l.newWriter()
	for _, master := range masters {
		t.Logf("the machine of master %s is killed", master)
		before := writer.written.Load()
		l.killMachine(key.RoleMaster, master)
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
	l.succeeds("m3", "m4")
	l.awaitReady(len(masters))
	l.oneEtcd(len(masters))
	writer.stop()
	t.Logf("%d writes, the longest pause between two was %s", writer.written.Load(), writer.longest)
	if writer.longest > silence {
		l.t.Errorf("the API was silent for %s, want %s at most", writer.longest, silence)
	}
}

// isRestored takes snapshots every minute and then restores the first one: objects from before the snapshot are there
// again, later ones are not, and the masters are one etcd cluster.
func (l *life) isRestored(masters, nodes int) {
	l.t.Helper()
	l.t.Log("the cluster is brought back to a snapshot")
	l.workload("", "create", "configmap", "before")
	l.management("patch", "kvmconfig", id, "--type=merge",
		`--patch={"spec":{"etcd":{"snapshots":{"schedule":"* * * * *","keep":100,"volume":{"hostPath":"`+l.SnapshotDirectory()+`"}}}}}`)
	var snapshot string
	l.eventually(patience, func() error {
		found, err := filepath.Glob(filepath.Join(l.SnapshotDirectory(), id+"-*.db"))
		if err != nil || len(found) == 0 {
			return errors.Join(errors.New("there is no snapshot"), err)
		}
		snapshot = filepath.Base(found[0])
		return nil
	})
	l.workload("", "create", "configmap", "after")
	began := time.Now()
	l.management("patch", "kvmconfig", id, "--type=merge",
		`--patch={"spec":{"etcd":{"snapshots":{"schedule":"0 0 1 1 *"},"restore":{"snapshot":"`+snapshot+`"}}}}`)
	l.eventually(patience, func() error { return l.condition("EtcdReady") })
	l.awaitReady(nodes)
	l.oneEtcd(masters)
	l.t.Logf("the cluster was brought back to %s in %s", snapshot, time.Since(began).Round(time.Second))
	for name, want := range map[string]bool{"before": true, "after": false} {
		if found := l.workload("", "get", "configmap", name, "--ignore-not-found", "--output=name"); (found != "") != want {
			l.t.Errorf("ConfigMap %s: %q, want it to be there: %t", name, found, want)
		}
	}
}

// succeeds replaces the third master by another one. The old machine stays until it is no longer part of etcd.
func (l *life) succeeds(old, next string) {
	l.t.Helper()
	l.t.Logf("master %s takes the place of %s", next, old)
	l.management("patch", "kvmconfig", id, "--type=json", `--patch=[{"op":"replace","path":"/spec/cluster/masters/2/id","value":"`+next+`"}]`)
	l.eventually(patience, func() error {
		if left := l.management("--namespace="+id, "get", "deployments,pods", "--selector="+key.LabelNode+"="+old, "--output=name"); left != "" {
			return fmt.Errorf("master %s is there: %s", old, strings.Join(strings.Fields(left), " "))
		}
		return nil
	})
}

// killMachine kills the QEMU of a node at once, as a power failure does.
func (l *life) killMachine(role, node string) {
	l.t.Helper()
	for _, host := range l.Cluster.Nodes() {
		if _, err := host.Exec(l.ctx, "pkill", "-KILL", "-f", "^[^ ]*qemu-system[^ ]* .*guest="+role+"-"+node+"-"); err == nil {
			return
		}
	}
	l.t.Fatalf("no host runs the machine of %s %s", role, node)
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

// oneEtcd checks that each master's API server, and so its etcd, sees what was written through another one.
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
		next := each[(i+1)%len(each)]
		// A timeout is not an answer, but the answer that there is no such object is one.
		l.eventually(silence, func() error {
			written, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(l.ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "one-etcd-"},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			_, err = next.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(l.ctx, written.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				l.t.Fatalf("what was written to %s is not known to its neighbour", addresses[i])
			}
			return err
		})
	}
}

// client returns a client of the workload cluster's API. If server is not empty, it is the address to use.
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

// writer writes to the workload cluster continuously.
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
