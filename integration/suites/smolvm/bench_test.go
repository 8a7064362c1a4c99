package smolvm_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/nodes"
	"github.com/kvm-operator/kvm-operator/service"
)

const (
	// perNode is how many machines with one processor and 512 MiB have room on a node: nodesOf gives it 8 and 4096 MiB.
	perNode = 8
	// mostWrites bounds the writes from the creation of a SmolVM until it is Running, events apart.
	mostWrites = 5
	// mostGrowth is the target of how the time grows with the number of SmolVMs.
	mostGrowth = 1.05
	// inFlight is how many requests the plain client has under way. The controller has as many passes.
	inFlight = 8
	// late is how long all may take on a busy machine.
	late = 15 * time.Minute
)

// cost is the cost of a number of SmolVMs, from the creation of all until all are Running.
type cost struct {
	machines, nodes       int
	writes, events, reads int
	took, plain           time.Duration
	// fullest is how many machines the node has that has most.
	fullest int
}

// BenchmarkManySmolVMs creates 10, 30, 100 and 300 SmolVMs at once, or as many as the variable SMOLVMS says, separated by
// commas. Their nodes and runtimes are played. It compares with a client that writes the same objects and their statuses.
func BenchmarkManySmolVMs(b *testing.B) {
	numbers := sizes()
	costs := make([]cost, len(numbers))
	for i, n := range numbers {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			fmt.Fprintf(os.Stderr, "measuring %d SmolVMs\n", n)
			costs[i] = measureMany(b, n)
		})
	}
	reportMany(b, costs)
}

// TestManySmolVMsInSmall keeps that benchmark working, and checks what it counts.
func TestManySmolVMsInSmall(t *testing.T) {
	numbers := []int{10, 30}
	costs := make([]cost, len(numbers))
	for i, n := range numbers {
		t.Run(strconv.Itoa(n), func(t *testing.T) { costs[i] = measureMany(t, n) })
	}
	reportMany(t, costs)
}

func sizes() []int {
	var picked []int
	for text := range strings.SplitSeq(os.Getenv("SMOLVMS"), ",") {
		if n, err := strconv.Atoi(text); err == nil {
			picked = append(picked, n)
		}
	}
	if len(picked) > 0 {
		return picked
	}
	return []int{10, 30, 100, 300}
}

// withUsualTimes are the settings of an operator for SmolVMs alone that waits as long as usual.
func withUsualTimes(c *service.Config) {
	withSmolVMs(c)
	c.SmolVMs.Times = nodes.Times{}
}

// measureMany fills nodes with machines. Two of them want each port. There are so many nodes that the last machine finds
// one in whatever order they are placed: besides those that others fill, and the one that has its port, there is another.
func measureMany(b testing.TB, n int) cost {
	b.Helper()
	c := cost{machines: n, nodes: (n-1)/perNode + 2}
	var names []string
	for i := range c.nodes {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	all := nodesOf(b, names...)
	operator := theLab.Run(b, withUsualTimes)
	operator.Requests.DropBodies()
	warm(b, operator, all)

	prefix := label(b) + "-vm-"
	b.Cleanup(func() { letAllGo(label(b)) })
	awaitRunning := watchRunning(b, prefix)
	start := time.Now()
	each(n, func(i int) {
		if err := theLab.Client.Create(context.Background(), oneOfMany(b, prefix, i, c.nodes)); err != nil {
			b.Error(err)
		}
	})
	awaitRunning(n, func() {
		for _, node := range all {
			node.report(b, nil)
		}
	})
	c.took = time.Since(start)
	awaitRest(b, operator)
	c.writes, c.reads = len(writesOf(operator)), len(operator.Requests.Reads())
	c.events = len(operator.Requests.Writes()) - c.writes
	operator.Stop()

	vms := vmsWith(b, prefix)
	c.fullest = checkPlaces(b, all, vms)
	c.plain = writePlainly(b, vms)
	return c
}

// warm has an operator do what it does once, and then forgets that.
func warm(b testing.TB, operator *lab.Operator, all []*node) {
	b.Helper()
	first := vmOf(b, "warm", nil)
	phaseIs(b, first, v1alpha1.PhaseRunning)
	theLab.Delete(b, first)
	gone(b, first)
	awaitRest(b, operator)
	for _, n := range all {
		n.set(func(f *fakeRuntime) { f.did = nil })
	}
	operator.Requests.Reset()
}

// oneOfMany returns a SmolVM. Without regard to ports, it and the other that wants its port would have the same node: the
// one with most room is taken, so that nodes take turns.
func oneOfMany(b testing.TB, prefix string, i, ofNodes int) *v1alpha1.SmolVM {
	vm := &v1alpha1.SmolVM{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s%03d", prefix, i)}}
	port := 20000 + i/(2*ofNodes)*ofNodes + i%ofNodes
	vm.Spec = v1alpha1.SmolVMSpec{
		Running: true, Image: "alpine:latest", NodeSelector: map[string]string{"test": label(b)}, Storage: v1alpha1.Storage{StorageGiB: 1, OverlayGiB: 1},
		Network: v1alpha1.Network{Ports: []v1alpha1.Port{{HostPort: int32(port), GuestPort: 80}}},
	}
	return vm
}

// watchRunning returns a function that waits until n SmolVMs whose names have a prefix are Running, and has nodes report
// while it waits. It watches: listing them repeatedly costs the API server more than the controller does.
func watchRunning(b testing.TB, prefix string) func(n int, report func()) {
	b.Helper()
	names := make(chan string)
	lab.Watch(b, theLab, &v1alpha1.SmolVMList{}, func(_ watch.EventType, vm *v1alpha1.SmolVM) {
		if strings.HasPrefix(vm.Name, prefix) && vm.Status.Phase == v1alpha1.PhaseRunning {
			select {
			case names <- vm.Name:
			case <-b.Context().Done():
			}
		}
	})
	return func(n int, report func()) {
		b.Helper()
		heartbeat, end := time.NewTicker(time.Minute), time.After(late)
		defer heartbeat.Stop()
		for running := map[string]bool{}; len(running) < n; {
			select {
			case name := <-names:
				running[name] = true
			case <-heartbeat.C:
				report()
			case <-end:
				b.Fatalf("%d of %d SmolVMs are Running after %s", len(running), n, late)
			}
		}
	}
}

func vmsWith(b testing.TB, prefix string) []v1alpha1.SmolVM {
	b.Helper()
	list := &v1alpha1.SmolVMList{}
	if err := theLab.Client.List(context.Background(), list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		b.Fatal(err)
	}
	var vms []v1alpha1.SmolVM
	for _, vm := range list.Items {
		if strings.HasPrefix(vm.Name, prefix) {
			vms = append(vms, vm)
		}
	}
	return vms
}

// checkPlaces fails the test unless each SmolVM has one machine, on its node, and no node has more than it can give or a port
// twice. No machine was removed, so what holds now has held all the time. It returns how many the fullest node has.
func checkPlaces(b testing.TB, all []*node, vms []v1alpha1.SmolVM) (fullest int) {
	b.Helper()
	nodeOf := map[string]string{}
	for i := range vms {
		nodeOf[machineOf(&vms[i])] = vms[i].Status.NodeName
	}
	found := 0
	for _, n := range all {
		machines, _ := n.List(b.Context()) // it never fails
		for _, m := range machines {
			if nodeOf[m.Name] != n.name || n.count("create", m.Name) != 1 || n.count("start", m.Name) != 1 {
				b.Errorf("node %s has %s, whose SmolVM has the node %q: %v", n.name, m.Name, nodeOf[m.Name], n.did)
			}
		}
		if len(n.did) != 2*len(machines) {
			b.Errorf("node %s did more than to create and to start %d machines: %v", n.name, len(machines), n.did)
		}
		checkRoom(b, n, machines)
		found += len(machines)
		fullest = max(fullest, len(machines))
	}
	if found != len(vms) {
		b.Errorf("there are %d machines of %d SmolVMs", found, len(vms))
	}
	return fullest
}

func checkRoom(b testing.TB, n *node, machines []api.Machine) {
	b.Helper()
	object := &v1alpha1.SmolVMNode{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	theLab.Get(b, object)
	room := object.Status.Allocatable
	ports := map[uint16]string{}
	var cpus, memory, storage int64
	for _, m := range machines {
		cpus, memory, storage = cpus+int64(m.CPUs), memory+m.MemoryMB, storage+m.StorageGB+m.OverlayGB
		for _, port := range m.Ports {
			if other, taken := ports[port.Host]; taken {
				b.Errorf("on node %s, port %d is that of %s and of %s", n.name, port.Host, other, m.Name)
			}
			ports[port.Host] = m.Name
		}
	}
	if len(ports) != len(machines) {
		b.Errorf("node %s has %d ports and %d machines", n.name, len(ports), len(machines))
	}
	if cpus > int64(room.CPUs) || memory > room.MemoryMiB || storage > room.StorageGiB {
		b.Errorf("node %s has %+v and gave %d processors, %d MiB and %d GiB", n.name, room, cpus, memory, storage)
	}
}

// writePlainly has a plain client write copies of SmolVMs and then their statuses, which is one write each. It returns the time.
func writePlainly(b testing.TB, vms []v1alpha1.SmolVM) time.Duration {
	b.Helper()
	start := time.Now()
	each(len(vms), func(i int) {
		twin := &v1alpha1.SmolVM{ObjectMeta: metav1.ObjectMeta{Namespace: vms[i].Namespace, Name: "plain-" + vms[i].Name, Finalizers: vms[i].Finalizers}, Spec: vms[i].Spec}
		err := theLab.Client.Create(context.Background(), twin)
		if err == nil {
			twin.Status = vms[i].Status
			err = theLab.Client.Status().Update(context.Background(), twin)
		}
		if err != nil {
			b.Error(err)
		}
	})
	return time.Since(start)
}

// letAllGo deletes the SmolVMs of a test.
func letAllGo(of string) {
	list := &v1alpha1.SmolVMList{}
	_ = theLab.Client.List(context.Background(), list) // what stays has no node
	each(len(list.Items), func(i int) {
		if strings.Contains(list.Items[i].Name, of) {
			remove(&list.Items[i])
		}
	})
}

// each calls f for 0 to n-1, inFlight at a time.
func each(n int, f func(int)) {
	work := make(chan int)
	var group sync.WaitGroup
	for range inFlight {
		group.Go(func() {
			for i := range work {
				f(i)
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	group.Wait()
}

// reportMany prints costs, and fails the test where a count exceeds its bound. Times depend on what else the machine does.
func reportMany(b testing.TB, costs []cost) {
	b.Helper()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "SmolVMs\tnodes\tmost on a node\twrites each\tevents each\treads\ttime\tplain client\tratio\texponent\t")
	for i, c := range costs {
		n, exponent := float64(c.machines), ""
		if i > 0 {
			exponent = fmt.Sprintf("%.2f", growth(costs[i-1], c))
		}
		fmt.Fprintf(w, "%d\t%d\t%d of %d\t%.2f\t%.2f\t%d\t%.2f s\t%.2f s\t%.2f\t%s\t\n", c.machines, c.nodes, c.fullest, perNode,
			float64(c.writes)/n, float64(c.events)/n, c.reads, c.took.Seconds(), c.plain.Seconds(), c.took.Seconds()/c.plain.Seconds(), exponent)
		if c.writes == 0 || c.writes > mostWrites*c.machines || c.reads > 0 || c.plain == 0 {
			b.Errorf("%d SmolVMs took %d writes and %d reads, the bounds are %d each and 0: %+v", c.machines, c.writes, c.reads, mostWrites, c)
		}
	}
	if err := w.Flush(); err != nil {
		b.Error(err)
	}
	if few, many := costs[0], costs[len(costs)-1]; few.machines < many.machines {
		fmt.Printf("from %d to %d the time grows with the number of SmolVMs to the power of %.2f (target %.2f)\n", few.machines, many.machines, growth(few, many), mostGrowth)
	}
}

func growth(few, many cost) float64 {
	return math.Log(many.took.Seconds()/few.took.Seconds()) / math.Log(float64(many.machines)/float64(few.machines))
}
