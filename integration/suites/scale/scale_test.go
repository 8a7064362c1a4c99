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
	clusterHeap, pods int64
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
	if r.plain == 0 || r.requests["POST"] == 0 {
		t.Errorf("nothing was measured: %+v", r)
	}
}

func measure(b testing.TB, n int) result {
	l, err := lab.Start(context.Background(), managementcluster.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := l.Stop(); err != nil {
			b.Error(err)
		}
	}()
	operator := l.Run(b)
	defer operator.Stop()
	awaitQuiet(operator)
	empty := heap()
	start := time.Now()
	configs := createAll(b, l, n)
	awaitObjects(b, l, configs)
	r := result{clusters: n, operator: time.Since(start), requests: byVerb(operator)}
	r.clusterHeap = heap() - empty
	r.pods = podHeap(b, l)
	operator.Stop()
	r.plain = postSame(b, l, configs)
	return r
}

func createAll(b testing.TB, l *lab.Lab, n int) []*v1alpha1.KVMConfig {
	var configs []*v1alpha1.KVMConfig
	for i := range n {
		configs = append(configs, fixture.MakeCluster(fmt.Sprintf("b%05d", i)).Workers(2).Obj())
	}
	each(len(configs), func(i int) {
		if err := l.Client.Create(context.Background(), configs[i]); err != nil {
			b.Error(err)
		}
	})
	return configs
}

// awaitObjects waits until every cluster has all its objects: its status then only waits for node pods.
func awaitObjects(b testing.TB, l *lab.Lab, configs []*v1alpha1.KVMConfig) {
	lab.Eventually(b, timeout, func() error {
		var list v1alpha1.KVMConfigList
		if err := l.Client.List(context.Background(), &list); err != nil {
			return err
		}
		complete := 0
		for _, c := range list.Items {
			if slices.ContainsFunc(c.Status.Conditions, func(c metav1.Condition) bool { return c.Reason == "NodesNotReady" }) {
				complete++
			}
		}
		if complete < len(configs) {
			return fmt.Errorf("%d of %d clusters are complete", complete, len(configs))
		}
		return nil
	})
}

// postSame creates copies of the operator's objects under other cluster ids, as fast as a plain client can.
func postSame(b testing.TB, l *lab.Lab, configs []*v1alpha1.KVMConfig) time.Duration {
	copies := make([][]client.Object, len(configs))
	for i, config := range configs {
		id := config.Spec.Cluster.ID
		for _, object := range l.Objects(b, config) {
			copies[i] = append(copies[i], renamed(b, object, id, strings.Replace(id, "b", "p", 1)))
		}
		// The namespace is created first.
		slices.SortStableFunc(copies[i], func(x, y client.Object) int { return rank(x) - rank(y) })
	}
	start := time.Now()
	each(len(copies), func(i int) {
		for _, object := range copies[i] {
			if err := l.Client.Create(context.Background(), object); err != nil {
				b.Errorf("posting %s %s: %s", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
			}
		}
	})
	return time.Since(start)
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
	fmt.Fprintln(w, "clusters\tPOST each\tPUT each\tPATCH each\tGET each\ttime\tplain client\tratio\tMiB per 1,000 clusters\tMiB per 1,000 node pods\t")
	for _, r := range results {
		n := float64(r.clusters)
		per := func(verb string) float64 { return float64(r.requests[verb]) / n }
		fmt.Fprintf(w, "%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f s\t%.1f s\t%.2f\t%.0f\t%.1f\t\n", r.clusters, per("POST"), per("PUT"), per("PATCH"), per("GET"),
			r.operator.Seconds(), r.plain.Seconds(), r.operator.Seconds()/r.plain.Seconds(), float64(r.clusterHeap)/n*thousand/(1<<20), float64(r.pods)/(1<<20))
	}
	if err := w.Flush(); err != nil {
		panic(err)
	}
}

// sizes returns the numbers of clusters to measure. The variable CLUSTERS picks one.
func sizes() []int {
	if n, err := strconv.Atoi(os.Getenv("CLUSTERS")); err == nil {
		return []int{n}
	}
	return []int{1, 10, 100, 300}
}
