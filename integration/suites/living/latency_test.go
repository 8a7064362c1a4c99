package living_test

import (
	"cmp"
	"context"
	"fmt"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

const (
	// aboveHalf and aboveMost are the bounds of the benchmark, in addition to the bare loop, for 50 % and 99 % of the
	// changes.
	aboveHalf, aboveMost = 10 * time.Millisecond, 100 * time.Millisecond
	// goalHalf and goalMost are the goals for the same, which the benchmark prints.
	goalHalf, goalMost = 3 * time.Millisecond, 10 * time.Millisecond
	// atRest is how long an operator without work is idle.
	atRest = 100 * time.Millisecond
	// leeway is the tolerance of the light test for a machine that runs other tests. The test only checks half of the
	// changes because such a machine sometimes stops for seconds.
	leeway = time.Second
)

// bareSlice is the slice that the bare loop writes.
const bareSlice = "bare"

// bench is a pod that becomes Ready or not Ready or is deleted, and the slices that follow.
type bench struct {
	t testing.TB
	l *living
	// rested waits until the operator has finished its work for the last change.
	rested  func()
	clients kubernetes.Interface
	pod     *corev1.Pod

	mu sync.Mutex
	// came is when an address was last added to or removed from each slice. told gets a value then.
	came map[place]arrival
	told chan struct{}
}

type place struct{ slice, address string }

type arrival struct {
	in bool
	at time.Time
}

func newBench(t testing.TB, l *living, operator *lab.Operator) *bench {
	t.Helper()
	config := rest.CopyConfig(theLab.RESTConfig())
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	must(t, err)
	b := &bench{t: t, l: l, clients: clients, pod: l.pod(t, "w0aaa"), came: map[place]arrival{}, told: make(chan struct{}, 1)}
	b.rested = func() { l.settle(t, operator, atRest) }
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	b.runBareLoop(ctx)
	b.follow(ctx)
	return b
}

// runBareLoop watches the pods of the node and writes the slice, and does nothing else. No operator can be faster.
func (b *bench) runBareLoop(ctx context.Context) {
	b.t.Helper()
	endpoints := b.clients.DiscoveryV1().EndpointSlices(b.pod.Namespace)
	slice, err := endpoints.Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: bareSlice}, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
	}, metav1.CreateOptions{})
	must(b.t, err)
	pods, err := b.clients.CoreV1().Pods(b.pod.Namespace).Watch(ctx, metav1.ListOptions{LabelSelector: key.LabelNode + "=" + b.pod.Labels[key.LabelNode]})
	must(b.t, err)
	go func() {
		serving := map[string]bool{}
		for event := range pods.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			in := ok && event.Type != watch.Deleted && pod.DeletionTimestamp == nil && lab.ConditionOf(pod, corev1.PodReady) == corev1.ConditionTrue
			if !ok || in == serving[pod.Status.PodIP] {
				continue
			}
			serving[pod.Status.PodIP] = in
			slice.Endpoints = []discoveryv1.Endpoint{}
			for address, in := range serving {
				if in {
					slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
				}
			}
			updated, err := endpoints.Update(ctx, slice, metav1.UpdateOptions{})
			if err != nil {
				b.t.Errorf("the bare loop cannot write: %s", err)
				return
			}
			slice = updated
		}
	}()
	b.t.Cleanup(pods.Stop)
}

// follow sees both slices through one watch.
func (b *bench) follow(ctx context.Context) {
	b.t.Helper()
	seen, err := b.clients.DiscoveryV1().EndpointSlices(b.pod.Namespace).Watch(ctx, metav1.ListOptions{})
	must(b.t, err)
	go func() {
		for event := range seen.ResultChan() {
			slice, ok := event.Object.(*discoveryv1.EndpointSlice)
			if ok && event.Type != watch.Deleted && (slice.Name == bareSlice || slice.Name == key.RoleWorker) {
				b.see(slice, time.Now())
			}
		}
	}()
	b.t.Cleanup(seen.Stop)
	b.until(true, time.Time{})
}

// see records what has changed in a slice.
func (b *bench) see(slice *discoveryv1.EndpointSlice, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := map[string]bool{}
	for _, address := range addressesOf(slice) {
		now[address] = true
		if known := (place{slice.Name, address}); !b.came[known].in {
			b.came[known] = arrival{in: true, at: at}
		}
	}
	for known, last := range b.came {
		if known.slice == slice.Name && last.in && !now[known.address] {
			b.came[known] = arrival{at: at}
		}
	}
	select {
	case b.told <- struct{}{}:
	default:
	}
}

// until waits until the pod's address is in or out of both slices, and returns how long each took since then.
func (b *bench) until(in bool, since time.Time) map[string]time.Duration {
	b.t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		took := map[string]time.Duration{}
		b.mu.Lock()
		for _, slice := range []string{bareSlice, key.RoleWorker} {
			if a := b.came[place{slice, b.pod.Status.PodIP}]; a.in == in && a.at.After(since) {
				took[slice] = a.at.Sub(since)
			}
		}
		b.mu.Unlock()
		if len(took) == 2 {
			return took
		}
		select {
		case <-b.told:
		case <-limit.C:
			b.t.Fatalf("within a minute only %v have followed pod %s", took, b.pod.Name)
		}
	}
}

// turn makes the pod Ready or not Ready, as its kubelet does, and returns how long the slices took to follow.
func (b *bench) turn(in bool) map[string]time.Duration {
	b.t.Helper()
	want := corev1.ConditionFalse
	if in {
		want = corev1.ConditionTrue
	}
	// The containers' condition changes too because otherwise the simulated kubelet would reset the pod's.
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q},{"type":"ContainersReady","status":%[1]q}]}}`, want)
	began := time.Now()
	_, err := b.clients.CoreV1().Pods(b.pod.Namespace).Patch(context.Background(), b.pod.Name, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{}, "status")
	must(b.t, err)
	return b.until(in, began)
}

// depart deletes the pod and returns how long the slices took to follow. The node's next pod then takes its place.
func (b *bench) depart() map[string]time.Duration {
	b.t.Helper()
	began := time.Now()
	must(b.t, b.clients.CoreV1().Pods(b.pod.Namespace).Delete(context.Background(), b.pod.Name, metav1.DeleteOptions{}))
	took := b.until(false, began)
	b.pod = b.l.pod(b.t, b.pod.Labels[key.LabelNode])
	b.l.join(b.t, b.pod)
	b.until(true, time.Time{})
	return took
}

// delays are the delays of the operator and of the bare loop, sorted, and the changes with which the operator took longest.
type delays struct {
	operator, bare []time.Duration
	slowest        []slow
}

// slow is what one change took, and how often the garbage of this process, in which the operator runs, was collected
// meanwhile.
type slow struct {
	operator, bare time.Duration
	collections    uint64
}

func (s slow) String() string {
	return fmt.Sprintf("operator %s, bare loop %s, %d garbage collections", s.operator, s.bare, s.collections)
}

// collections returns how often garbage was collected so far.
func collections() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// measure makes the pod Ready and not Ready the given number of times.
func (b *bench) measure(times int) delays {
	b.t.Helper()
	in := true
	return b.repeat(2*times, func() map[string]time.Duration {
		in = !in
		return b.turn(in)
	})
}

// repeat does something several times. Each time, the operator has finished the previous work.
func (b *bench) repeat(times int, do func() map[string]time.Duration) delays {
	b.t.Helper()
	var d delays
	for range times {
		b.rested()
		before := collections()
		took := do()
		d.operator, d.bare = append(d.operator, took[key.RoleWorker]), append(d.bare, took[bareSlice])
		d.slowest = append(d.slowest, slow{took[key.RoleWorker], took[bareSlice], collections() - before})
	}
	slices.SortFunc(d.slowest, func(a, b slow) int { return cmp.Compare(b.operator-b.bare, a.operator-a.bare) })
	slices.Sort(d.operator)
	slices.Sort(d.bare)
	return d
}

// percentile returns the value that p of 100 sorted values do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

// String summarizes the delays.
func (d delays) String() string {
	return fmt.Sprintf("operator: half within %s, 99%% within %s; bare loop: %s, %s", percentile(d.operator, 50), percentile(d.operator, 99),
		percentile(d.bare, 50), percentile(d.bare, 99))
}

// followsAtOnce: the operator takes little longer than a loop that does nothing else.
func followsAtOnce(t *testing.T, l *living, operator *lab.Operator) {
	b := newBench(t, l, operator)
	d := b.measure(20)
	t.Log(d)
	if over := percentile(d.operator, 50) - percentile(d.bare, 50); over > leeway {
		t.Errorf("the operator is %s slower than a bare loop, every other time", over)
	}
	must(t, b.clients.DiscoveryV1().EndpointSlices(b.pod.Namespace).Delete(t.Context(), bareSlice, metav1.DeleteOptions{}))
}

// BenchmarkPodReadyToEndpoint measures the time from a pod that becomes Ready, becomes not Ready or is deleted to the
// EndpointSlice, beside 100 idle clusters.
func BenchmarkPodReadyToEndpoint(b *testing.B) {
	operator := theLab.Run(b, ofShard("shard in (live, idle)"))
	var idle []*living
	for _, id := range crowdIDs("i", many) {
		idle = append(idle, create(b, crowd, "idle", fixture.MakeCluster(id)))
	}
	l := create(b, quiet, "live", fixture.MakeCluster("live").Workers(1))
	for _, i := range idle {
		i.await(b, isTrue("Available"))
	}
	l.join(b, l.pod(b, "m0aaa"))
	l.join(b, l.pod(b, "w0aaa"))
	l.await(b, isTrue("Ready"))
	bench := newBench(b, l, operator)
	b.ResetTimer()
	var turned, departed delays
	passes, last := 0, where.Passes(l.id)
	for b.Loop() {
		turned = bench.measure(100)
		passes += where.Passes(l.id) - last
		departed = bench.repeat(50, bench.depart)
		last = where.Passes(l.id)
	}
	b.ReportMetric(float64(passes)/float64(len(turned.operator)*b.N), "passes/change")
	turned.judge(b, "Ready or not")
	departed.judge(b, "deleted")
}

// verdict says whether a goal was met.
func verdict(met bool) string {
	if met {
		return "met"
	}
	return "not met"
}

// judge reports the delays and compares them with the bounds.
func (d delays) judge(b *testing.B, what string) {
	b.Helper()
	unit := strings.ReplaceAll(what, " ", "-")
	for p, goal := range map[int]time.Duration{50: goalHalf, 99: goalMost} {
		over := percentile(d.operator, p) - percentile(d.bare, p)
		b.ReportMetric(float64(over.Microseconds())/1000, fmt.Sprintf("ms-over-bare-p%d/%s", p, unit))
		b.ReportMetric(float64(percentile(d.operator, p).Microseconds())/1000, fmt.Sprintf("ms-operator-p%d/%s", p, unit))
		b.Logf("%s: over the bare loop it takes %s for %d of 100, the goal is at most %s: %s", what, over, p, goal, verdict(over <= goal))
	}
	b.Logf("%s: %s", what, d)
	for _, s := range d.slowest[:min(len(d.slowest), 6)] {
		b.Logf("%s: among the slowest: %s", what, s)
	}
	if half, most := percentile(d.operator, 50)-percentile(d.bare, 50), percentile(d.operator, 99)-percentile(d.bare, 99); half > aboveHalf || most > aboveMost {
		b.Errorf("%s: over the bare loop it takes %s half of the time and %s most of the time, want at most %s and %s", what, half, most, aboveHalf, aboveMost)
	}
}
