package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kvm-operator/kvm-operator/integration/harness/stage"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

const (
	// replicas is the number of pods of the web server, one for each worker. A budget keeps enough of them available.
	replicas, enough = 3, 2
	// held is how long the test watches a node that a budget blocks.
	held = 30 * time.Second
	// budget is the PodDisruptionBudget of the web server.
	budget = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web, namespace: default}\n" +
		"spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}\n"
)

// operations are done on a running cluster of one master and three workers.
type operations struct {
	*life
	outside, inside kubernetes.Interface
	witness         *witness
}

// TestOperations runs operations on real machines: workers of a cluster are removed, changed, killed, rebooted, hung
// and drained from their host, and the cluster is restored from a snapshot of etcd, while the operator is killed
// repeatedly. No worker disappears before it is drained.
func TestOperations(t *testing.T) {
	// One host of workers is drained, and a host with two machines has no room for the operator.
	l := setUp(t, stage.Options{Masters: 1, Workers: 3, Snapshots: true})
	if err := l.Apply(l.ctx, manifest(id, []string{"m1"}, []string{"w1", "w2", "w3"})); err != nil {
		l.t.Fatal(err)
	}
	l.awaitReady(4)
	outside, err := kubernetes.NewForConfig(l.Cluster.RESTConfig())
	if err != nil {
		l.t.Fatal(err)
	}
	o := &operations{life: l, outside: outside, inside: l.client("")}
	o.witness = newWitness(l, o.outside, o.inside)
	o.runWeb()
	seed := uint64(time.Now().UnixNano())
	t.Logf("the operator is killed as seed %d says", seed)
	killed := o.killOperators(rand.New(rand.NewPCG(seed, 0)))
	for _, operation := range []struct {
		name string
		do   func()
	}{
		{"the worker in the middle is removed", o.removeMiddle},
		{"the memory of a worker is changed", o.changeMemory},
		{"the machine of a worker is killed", o.killWorker},
		{"the guest of a worker reboots", o.rebootWorker},
		{"the machine of a worker hangs", o.hangWorker},
		{"a host is drained", o.drainHost},
		{"a snapshot is restored", o.restore},
	} {
		if !o.during(t, operation.name, func() {
			t.Log(operation.name)
			began := time.Now()
			operation.do()
			t.Logf("%s: done after %s; the operator has been killed %d times", operation.name, time.Since(began).Round(time.Second), killed.Load())
		}) {
			t.FailNow()
		}
	}
	if killed.Load() == 0 {
		l.t.Errorf("the operator was never killed")
	}
	l.ends()
}

// during runs an operation as its own subtest. The operations build on each other, but a snapshot can be restored
// alone.
func (l *life) during(t *testing.T, name string, do func()) bool {
	t.Helper()
	return t.Run(name, func(t *testing.T) {
		whole := l.t.TB
		defer func() { l.t.TB = whole }()
		l.t.TB = t
		do()
	})
}

// runWeb runs a web server on every worker.
func (o *operations) runWeb() {
	o.t.Helper()
	manifest, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(stage.Web)))
	if err != nil {
		o.t.Fatal(err)
	}
	o.workload(strings.ReplaceAll(string(manifest), "replicas: 2", fmt.Sprintf("replicas: %d", replicas))+"---\n"+budget, "apply", "--filename=-")
	o.workload("", "rollout", "status", "deployment/web", "--timeout=10m")
}

// removeMiddle: only the removed worker is drained, regardless of its place in the list.
func (o *operations) removeMiddle() {
	before := o.nodes()
	o.patch(`[{"op":"remove","path":"/spec/cluster/workers/1"},{"op":"remove","path":"/spec/kvm/workers/1"}]`)
	o.whole(3)
	o.departed(drain.Drained, "w2")
	for name, now := range o.nodes() {
		if now.boot != before[name].boot {
			o.t.Errorf("Node %s has booted again", name)
		}
	}
}

// changeMemory: a worker whose size has changed is drained and then replaced. While a budget rejects the eviction, its
// machine keeps running.
func (o *operations) changeMemory() {
	before := o.node("w1")
	available := o.watchAvailable()
	o.patch(`[{"op":"replace","path":"/spec/kvm/workers/0/memory","value":"2700M"}]`)
	o.eventually(patience, func() error {
		said := o.witness.said(before.name)
		if !slices.ContainsFunc(said, func(text string) bool { return strings.Contains(text, "disruption budget web needs 2") }) {
			return fmt.Errorf("the budget is not said to refuse: %q", said)
		}
		return nil
	})
	pause(o.ctx, held)
	if lowest := available(); lowest < enough {
		o.t.Errorf("%d pods of the web server were available, its budget wants %d", lowest, enough)
	}
	if now := o.nodes()[before.name]; !now.ready || now.boot != before.boot {
		o.t.Errorf("the budget holds a pod on Node %s, which is Ready: %t, booted again: %t", before.name, now.ready, now.boot != before.boot)
	}
	o.workload(strings.ReplaceAll(budget, "minAvailable: 2", "minAvailable: 1"), "apply", "--filename=-")
	o.whole(3)
	o.departed(drain.Drained, "w1")
	if now := o.node("w1"); now.memory <= before.memory {
		o.t.Errorf("the worker had %d bytes of memory and has %d", before.memory, now.memory)
	}
}

// killWorker covers a power failure: the machine comes back in its pod, under its name.
func (o *operations) killWorker() {
	before := o.node("w3")
	o.killMachine(key.RoleWorker, "w3")
	o.bootedAgain("w3", before)
	if restarts := o.restarts(before.name); restarts != before.restarts+1 {
		o.t.Errorf("the container has begun %d times again, want once", restarts-before.restarts)
	}
}

// rebootWorker: a guest that reboots keeps its runner and comes back under its name.
func (o *operations) rebootWorker() {
	before := o.node("w3")
	o.run(before.name, "console", "--type=systemctl reboot")
	o.bootedAgain("w3", before)
	if restarts := o.restarts(before.name); restarts != before.restarts {
		o.t.Errorf("the container has begun %d times again, want it to stay", restarts-before.restarts)
	}
}

// bootedAgain waits until the machine of a node has booted again in the same pod.
func (o *operations) bootedAgain(node string, before member) {
	o.eventually(patience, func() error {
		if now, known := o.nodes()[before.name]; !known || now.boot == before.boot {
			return fmt.Errorf("Node %s has not booted again", before.name)
		}
		return nil
	})
	o.whole(3)
	o.departed(drain.Drained)
	if now := o.node(node); now.name != before.name {
		o.t.Errorf("node %s was Node %s and is Node %s", node, before.name, now.name)
	}
}

// hangWorker: a machine whose CPUs are stopped while its QEMU works is replaced. Before that, the operator reports the
// end of its console.
func (o *operations) hangWorker() {
	busiest := o.busiest()
	hung := o.node(busiest).name
	o.patch(`[{"op":"add","path":"/spec/remediation","value":{"enabled":true,"unhealthyAfter":"4m"}}]`)
	words := "the last console output of " + hung
	o.run(hung, "console", "--type=echo "+words)
	o.eventually(patience, func() error {
		if console := o.run(hung, "console", "--tail"); !strings.Contains(console, words) {
			return fmt.Errorf("the console is %q", console)
		}
		return nil
	})
	o.run(hung, "qmp", `{"execute":"stop"}`)
	o.eventually(patience, func() error {
		if told := o.management("get", "kvmconfig", id, "--output=jsonpath={.status.nodes[*].console}"); !strings.Contains(told, words) {
			return fmt.Errorf("the console of the hung worker is not reported: %q", told)
		}
		return nil
	})
	o.eventually(patience, func() error {
		if !o.witness.drained(hung) {
			return fmt.Errorf("the hung worker is not released: %q", o.witness.said(hung))
		}
		return nil
	})
	// It will never shut down, so the test does not wait until the runner gives up.
	o.run(hung, "qmp", `{"execute":"quit"}`)
	o.patch(`[{"op":"remove","path":"/spec/remediation"}]`)
	o.whole(3)
	o.departed(drain.Drained, busiest)
}

// drainHost: `kubectl drain` of a host first drains the guests on it.
func (o *operations) drainHost() {
	pods := o.pods()
	host := pods[o.node(o.busiest()).name].Spec.NodeName
	var leave []string
	for _, pod := range pods {
		if pod.Spec.NodeName == host {
			leave = append(leave, pod.Labels[key.LabelNode])
		}
	}
	o.t.Logf("  %s runs the machines of %s", host, strings.Join(leave, ", "))
	o.management("drain", host, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=1h")
	for name, pod := range o.pods() {
		if pod.Spec.NodeName == host {
			o.t.Errorf("pod %s is still on %s", name, host)
		}
	}
	o.management("uncordon", host)
	o.whole(3)
	o.departed(drain.Drained, leave...)
}

// restore: the master is replaced without a drain, and workers stay.
func (o *operations) restore() {
	o.isRestored(1, 3)
	o.whole(3)
	o.departed(drain.Restoring, "m1")
}

// member is a Node of the workload cluster.
type member struct {
	name, boot string
	memory     int64 // bytes
	ready      bool
	restarts   int32 // of the container; set by node
}

// nodes returns the Nodes of the workload cluster by name.
func (o *operations) nodes() map[string]member {
	o.t.Helper()
	var list *corev1.NodeList
	o.eventually(patience, func() (err error) {
		list, err = o.inside.CoreV1().Nodes().List(o.ctx, metav1.ListOptions{})
		return err
	})
	nodes := map[string]member{}
	for _, node := range list.Items {
		m := member{name: node.Name, boot: node.Status.NodeInfo.BootID, memory: node.Status.Capacity.Memory().Value()}
		for _, c := range node.Status.Conditions {
			m.ready = m.ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		nodes[node.Name] = m
	}
	return nodes
}

// pods returns the node pods that are not being deleted, by name.
func (o *operations) pods() map[string]corev1.Pod {
	o.t.Helper()
	list, err := o.outside.CoreV1().Pods(id).List(o.ctx, metav1.ListOptions{LabelSelector: key.LabelNode})
	if err != nil {
		o.t.Fatal(err)
	}
	pods := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			pods[pod.Name] = pod
		}
	}
	return pods
}

// node returns the Node of a node of the KVMConfig.
func (o *operations) node(node string) member {
	o.t.Helper()
	nodes := o.nodes()
	for name, pod := range o.pods() {
		if m, known := nodes[name]; known && pod.Labels[key.LabelNode] == node {
			m.restarts = o.restarts(name)
			return m
		}
	}
	o.t.Fatalf("node %s has no Node", node)
	return member{}
}

// restarts is how often the container of a pod has restarted.
func (o *operations) restarts(pod string) (sum int32) {
	o.t.Helper()
	for _, c := range o.pods()[pod].Status.ContainerStatuses {
		sum += c.RestartCount
	}
	return sum
}

// whole waits until the current generation of the KVMConfig is Ready, and all Nodes are Ready and belong to pods that
// are not being deleted.
func (o *operations) whole(want int) {
	o.t.Helper()
	o.eventually(patience, func() error {
		if err := o.condition("Ready"); err != nil {
			return err
		}
		all, err := o.outside.CoreV1().Pods(id).List(o.ctx, metav1.ListOptions{LabelSelector: key.LabelNode})
		if err != nil {
			return err
		}
		var pods, ready []string
		for _, pod := range all.Items {
			pods = append(pods, pod.Name)
		}
		for name, m := range o.nodes() {
			if !m.ready {
				name += " is not Ready"
			}
			ready = append(ready, name)
		}
		slices.Sort(pods)
		slices.Sort(ready)
		if diff := cmp.Diff(pods, ready); diff != "" || len(pods) != want {
			return fmt.Errorf("%d pods, want %d; they and the Ready Nodes differ (-pods +Nodes):\n%s", len(pods), want, diff)
		}
		return nil
	})
}

// departed fails unless exactly the pods of these nodes have disappeared since the last call, each released for that
// reason.
func (o *operations) departed(reason drain.Reason, nodes ...string) {
	o.t.Helper()
	var want, got []string
	for _, node := range slices.Sorted(slices.Values(nodes)) {
		want = append(want, departure{node: node, drained: corev1.PodCondition{Status: corev1.ConditionTrue, Reason: string(reason)}}.String())
	}
	departures := o.witness.departures()
	for _, d := range departures {
		got = append(got, d.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		o.t.Errorf("other pods than expected went, or for another reason (-want +got):\n%s", diff)
	}
	if reason != drain.Drained {
		return
	}
	asked := 0
	for _, d := range departures {
		ran, err := o.witness.unasked(d)
		if err != nil {
			o.t.Errorf("%s", err)
		}
		o.t.Logf("  %s, and before that the %d pods of the web server that had run there", d, ran)
		asked += ran
	}
	if len(nodes) > 0 && asked == 0 {
		o.t.Errorf("no pod of the web server has run there: it is not shown that any would have been asked to go")
	}
}

// busiest returns the worker with the most pods of the web server.
func (o *operations) busiest() (node string) {
	o.t.Helper()
	most := 0
	for name, pod := range o.pods() {
		if runs := o.witness.runs(name); runs > most {
			node, most = pod.Labels[key.LabelNode], runs
		}
	}
	if most == 0 {
		o.t.Fatal("no worker has a pod of the web server")
	}
	return node
}

// patch changes the KVMConfig.
func (o *operations) patch(change string) {
	o.t.Helper()
	o.management("patch", "kvmconfig", id, "--type=json", "--patch="+change)
}

// run runs a command of the runner in a node pod.
func (o *operations) run(pod string, arguments ...string) (output string) {
	o.t.Helper()
	return o.management(append([]string{"--namespace=" + id, "exec", pod, "--", stage.Program, "runner"}, arguments...)...)
}
