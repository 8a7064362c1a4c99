// Package scale_test measures the cost of many clusters.
package scale_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

const timeout = 15 * time.Minute

// inFlight is the number of concurrent requests of the plain client. It is the same as the operator's.
const inFlight = 8

// result is the cost of a number of clusters.
type result struct {
	clusters          int
	requests          map[string]int
	operator, plain   time.Duration
	operatorCPU       cpu
	plainCPU          cpu
	clusterHeap, pods int64
	// one is how long one more cluster takes, beside those that there are, and onePlain the plain client for the same.
	one, onePlain time.Duration
	restart       restart
}

// BenchmarkClusters creates 1, 10, 100 and 300 clusters of one master and two workers, each number on a separate
// management cluster, and compares with a client that only creates the same objects on the same API server.
func BenchmarkClusters(b *testing.B) {
	for b.Loop() {
		var results []result
		for _, n := range sizes() {
			fmt.Fprintf(os.Stderr, "measuring %d clusters\n", n)
			results = append(results, measure(b, n))
		}
		report(results)
	}
}

// TestBenchmarkInSmall keeps the benchmark working: it has two clusters and compares nothing.
func TestBenchmarkInSmall(t *testing.T) {
	r := measure(t, 2)
	report([]result{r})
	if r.plain == 0 || r.one == 0 || r.operatorCPU.servers == 0 || r.requests["POST"] == 0 {
		t.Errorf("something was not measured: %+v", r)
	}
	if r.restart.writes+r.restart.reads > 0 {
		t.Errorf("a restart costs %d writes and %d reads, want none", r.restart.writes, r.restart.reads)
	}
}

func measure(b testing.TB, n int) result {
	// The usual range of node ports has too few for 1,000 clusters and their copies.
	l, err := lab.Start(context.Background(), managementcluster.Options{Flags: map[managementcluster.Component][]string{
		managementcluster.APIServer: {"--service-node-port-range=2000-65000"},
	}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := l.Stop(); err != nil {
			b.Error(err)
		}
	}()
	// The first request for a new kind waits about two seconds until the API server serves it.
	if err := l.Client.Create(context.Background(), fixture.MakeCluster("warm").Obj(), client.DryRunAll); err != nil {
		b.Fatal(err)
	}
	operator := l.Run(b)
	defer operator.Stop()
	operator.Requests.DropBodies()
	awaitQuiet(operator)
	empty := heap()
	complete := watchComplete(b, l, "b")
	start, used := time.Now(), usedCPU(b)
	configs := createAll(b, l, "b", n)
	complete(n)
	r := result{clusters: n, operator: time.Since(start), operatorCPU: usedCPU(b).minus(used), requests: byVerb(operator)}
	awaitRest(b)
	r.clusterHeap = heap() - empty
	one, more := timeOne(b, l)
	r.one = one
	r.pods = podHeap(b, l)
	operator.Stop()
	r.restart = timeRestart(b, l, n+len(more))
	r.plain, r.plainCPU = postSame(b, l, configs)
	for i := range more {
		took, _ := postSame(b, l, more[i:i+1])
		r.onePlain += took / singles
	}
	return r
}

// singles is how many clusters are created one after the other.
const singles = 5

// timeOne returns how long one cluster takes, the mean of some, beside those that there are and that nothing happens to.
func timeOne(b testing.TB, l *lab.Lab) (time.Duration, []*v1alpha1.KVMConfig) {
	var all []*v1alpha1.KVMConfig
	var took time.Duration
	for i := range singles {
		prefix := fmt.Sprintf("s%d", i)
		complete := watchComplete(b, l, prefix)
		start := time.Now()
		all = append(all, createAll(b, l, prefix, 1)...)
		complete(1)
		took += time.Since(start)
		awaitRest(b)
	}
	return took / singles, all
}

func createAll(b testing.TB, l *lab.Lab, prefix string, n int) []*v1alpha1.KVMConfig {
	var configs []*v1alpha1.KVMConfig
	for i := range n {
		configs = append(configs, fixture.MakeCluster(fmt.Sprintf("%s%0*d", prefix, 6-len(prefix), i)).Workers(2).Obj())
	}
	each(len(configs), func(i int) {
		if err := l.Client.Create(context.Background(), configs[i]); err != nil {
			b.Error(err)
		}
	})
	return configs
}

// watchComplete returns a function that waits until n clusters whose names have a prefix have all their objects: their
// status then only waits for node pods. It watches, because listing KVMConfigs repeatedly costs the API server more
// than the operator does, and it has listed those that exist when it returns.
func watchComplete(b testing.TB, l *lab.Lab, prefix string) func(n int) {
	watcher, err := client.NewWithWatch(l.RESTConfig(), client.Options{Scheme: l.Client.Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	complete, listed := make(chan string), make(chan struct{})
	var watching sync.WaitGroup
	b.Cleanup(func() { cancel(); watching.Wait() })
	watching.Go(func() { watchAgain(ctx, watcher, prefix, complete, sync.OnceFunc(func() { close(listed) })) })
	select {
	case <-listed:
	case <-time.After(timeout):
		b.Fatalf("KVMConfigs were not listed within %s", timeout)
	}
	return func(n int) {
		defer cancel()
		late := time.After(timeout)
		for all := map[string]bool{}; len(all) < n; {
			select {
			case name := <-complete:
				all[name] = true
			case <-late:
				b.Fatalf("%d of %d clusters are complete after %s", len(all), n, timeout)
			}
		}
	}
}

// watchAgain sends the names of complete clusters. The API server ends a watch that falls behind, as may happen while all
// processors are busy; the clusters are then listed once. It calls begins when a watch begins.
func watchAgain(ctx context.Context, c client.WithWatch, prefix string, complete chan<- string, begins func()) {
	see := func(config *v1alpha1.KVMConfig) {
		if strings.HasPrefix(config.Name, prefix) && slices.ContainsFunc(config.Status.Conditions, func(c metav1.Condition) bool { return c.Reason == "NodesNotReady" }) {
			select {
			case complete <- config.Name:
			case <-ctx.Done():
			}
		}
	}
	for ; ctx.Err() == nil; pause(ctx) {
		var list v1alpha1.KVMConfigList
		if err := c.List(ctx, &list); err != nil {
			continue
		}
		for i := range list.Items {
			see(&list.Items[i])
		}
		w, err := c.Watch(ctx, &v1alpha1.KVMConfigList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
		if err != nil {
			continue
		}
		begins()
		for event := range w.ResultChan() {
			if config, ok := event.Object.(*v1alpha1.KVMConfig); ok {
				see(config)
			}
		}
	}
}

// pause waits a moment, and not after the context has ended.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

// postSame creates copies of the operator's objects under other cluster ids, as fast as a plain client can.
func postSame(b testing.TB, l *lab.Lab, configs []*v1alpha1.KVMConfig) (time.Duration, cpu) {
	copies := l.ObjectsByConfig(b, configs...)
	for i, config := range configs {
		id := config.Spec.Cluster.ID // b or s and more
		for j, object := range copies[i] {
			copies[i][j] = renamed(b, object, id, string(id[0]+1)+id[1:])
		}
		// The namespace is created first.
		slices.SortStableFunc(copies[i], func(x, y client.Object) int { return rank(x) - rank(y) })
	}
	start, used := time.Now(), usedCPU(b)
	each(len(copies), func(i int) {
		for _, object := range copies[i] {
			if err := l.Client.Create(context.Background(), object); err != nil {
				b.Errorf("posting %s %s: %s", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
			}
		}
	})
	return time.Since(start), usedCPU(b).minus(used)
}

func rank(object client.Object) int {
	if _, ok := object.(*corev1.Namespace); ok {
		return 0
	}
	return 1
}

// thousand is the number of node pods for the measurement of their memory.
const thousand = 1000

// podHeap returns the memory of 1,000 node pods.
func podHeap(b testing.TB, l *lab.Lab) int64 {
	ctx := context.Background()
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "pods"}},
		// Without a controller manager nothing creates it, and without it pods are rejected.
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "default"}},
	} {
		if err := l.Client.Create(ctx, object); err != nil {
			b.Fatal(err)
		}
	}
	before := heap()
	each(thousand, func(i int) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: fmt.Sprintf("pod-%d", i), Labels: map[string]string{
				key.LabelPodWatcher: key.Operator, key.LabelGSCluster: "none", key.LabelNode: "n", key.LabelApp: key.RoleWorker,
			}},
			Spec: corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{Name: "k8s-kvm", Image: "x"}}},
		}
		if err := l.Client.Create(ctx, pod); err != nil {
			b.Error(err)
		}
	})
	return heap() - before
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

// heap returns the memory in use after garbage collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// awaitQuiet waits until the operator has filled its caches.
func awaitQuiet(operator *lab.Operator) {
	for operator.Requests.Watches() < watches {
		time.Sleep(10 * time.Millisecond)
	}
}

// watches is the number of kinds that the operator watches.
const watches = 16

func byVerb(operator *lab.Operator) map[string]int {
	counts := map[string]int{}
	for _, r := range operator.Requests.All() {
		counts[r.Method]++
	}
	return counts
}

func report(results []result) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "clusters\tPOST each\tPUT each\tPATCH each\tGET each\ttime\tplain client\tratio\tCPU operator+servers\tCPU plain+servers\t"+
		"one more\tplain\tratio\tMiB per 1,000 clusters\tMiB per 1,000 node pods\t")
	for _, r := range results {
		n := float64(r.clusters)
		per := func(verb string) float64 { return float64(r.requests[verb]) / n }
		fmt.Fprintf(w, "%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f s\t%.1f s\t%.2f\t%s\t%s\t%d ms\t%d ms\t%.2f\t%.0f\t%.1f\t\n",
			r.clusters, per("POST"), per("PUT"), per("PATCH"), per("GET"), r.operator.Seconds(), r.plain.Seconds(), r.ratio(),
			r.operatorCPU, r.plainCPU, r.one.Milliseconds(), r.onePlain.Milliseconds(), r.oneRatio(),
			r.mib(), float64(r.pods)/(1<<20))
	}
	fmt.Fprintln(w, "clusters\trestart\tlisting the same objects\tratio\twrites\treads\t")
	for _, r := range results {
		fmt.Fprintf(w, "%d\t%.2f s\t%.2f s\t%.2f\t%d\t%d\t\n", r.clusters, r.restart.took.Seconds(), r.restart.lists.Seconds(),
			r.restartRatio(), r.restart.writes, r.restart.reads)
	}
	if err := w.Flush(); err != nil {
		panic(err)
	}
	for _, line := range verdicts(results) {
		fmt.Println(line)
	}
}

// sizes returns the numbers of clusters to measure. The variable CLUSTERS picks others, separated by commas.
func sizes() []int {
	var picked []int
	for text := range strings.SplitSeq(os.Getenv("CLUSTERS"), ",") {
		if n, err := strconv.Atoi(text); err == nil {
			picked = append(picked, n)
		}
	}
	if len(picked) > 0 {
		return picked
	}
	return []int{1, 10, 100, 300}
}
