package living_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kvm-operator/kvm-operator/integration/fixture"
	"github.com/kvm-operator/kvm-operator/integration/lab"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

const (
	// above are the bounds of the benchmark, over the bare loop, for half and for 99 of 100 changes.
	aboveHalf, aboveMost = 10 * time.Millisecond, 100 * time.Millisecond
	// atRest is how long an operator that is done does nothing.
	atRest = 100 * time.Millisecond
	// leeway is what the light test forgives a machine that runs other tests. It looks at half of the changes only: such a
	// machine stops for seconds now and then.
	leeway = time.Second
)

// bareSlice is what the bare loop writes.
const bareSlice = "bare"

// bench is a pod whose readiness is switched and the slices that follow.
type bench struct {
	t testing.TB
	// rested waits until the operator is done with what came of the last switch.
	rested  func()
	clients kubernetes.Interface
	pod     *corev1.Pod
	// came gets the name of each slice that begins or ceases to have the pod's address, with the time.
	came chan arrival
}

type arrival struct {
	slice string
	in    bool
	at    time.Time
}

func newBench(t testing.TB, l *living, operator *lab.Operator) *bench {
	t.Helper()
	config := rest.CopyConfig(theLab.RESTConfig())
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	must(t, err)
	b := &bench{t: t, clients: clients, pod: l.pod(t, "w0aaa"), came: make(chan arrival, 100)}
	b.rested = func() { l.settle(t, operator, atRest) }
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	b.runBareLoop(ctx)
	b.follow(ctx)
	return b
}

// runBareLoop watches the pod and writes the slice, and does nothing else: what no operator can be faster than.
func (b *bench) runBareLoop(ctx context.Context) {
	b.t.Helper()
	endpoints := b.clients.DiscoveryV1().EndpointSlices(b.pod.Namespace)
	slice, err := endpoints.Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: bareSlice}, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
	}, metav1.CreateOptions{})
	must(b.t, err)
	pods, err := b.clients.CoreV1().Pods(b.pod.Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + b.pod.Name})
	must(b.t, err)
	go func() {
		for event := range pods.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			in := ok && lab.ConditionOf(pod, corev1.PodReady) == corev1.ConditionTrue
			if !ok || in == (len(slice.Endpoints) > 0) {
				continue
			}
			slice.Endpoints = []discoveryv1.Endpoint{}
			if in {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{pod.Status.PodIP}})
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

// follow sees both slices by one watch.
func (b *bench) follow(ctx context.Context) {
	b.t.Helper()
	seen, err := b.clients.DiscoveryV1().EndpointSlices(b.pod.Namespace).Watch(ctx, metav1.ListOptions{})
	must(b.t, err)
	go func() {
		has := map[string]bool{}
		for event := range seen.ResultChan() {
			slice, ok := event.Object.(*discoveryv1.EndpointSlice)
			if !ok || event.Type == watch.Deleted || slice.Name != bareSlice && slice.Name != key.RoleWorker {
				continue
			}
			in := slices.Contains(addressesOf(slice), b.pod.Status.PodIP)
			if in != has[slice.Name] {
				has[slice.Name] = in
				b.came <- arrival{slice: slice.Name, in: in, at: time.Now()}
			}
		}
	}()
	b.t.Cleanup(seen.Stop)
	b.until(true, time.Now())
}

// until waits until the address is in or out of both slices, and returns how long each took since.
func (b *bench) until(in bool, since time.Time) map[string]time.Duration {
	b.t.Helper()
	took := map[string]time.Duration{}
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for len(took) < 2 {
		select {
		case a := <-b.came:
			if a.in == in {
				took[a.slice] = a.at.Sub(since)
			}
		case <-limit.C:
			b.t.Fatalf("within a minute only %v have followed pod %s", took, b.pod.Name)
		}
	}
	return took
}

// turn makes the pod Ready or not, as its kubelet does, and returns how long the slices took to follow.
func (b *bench) turn(in bool) map[string]time.Duration {
	b.t.Helper()
	want := corev1.ConditionFalse
	if in {
		want = corev1.ConditionTrue
	}
	// The containers' condition goes along, or the kubelet that is played here would contradict.
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q},{"type":"ContainersReady","status":%[1]q}]}}`, want)
	began := time.Now()
	_, err := b.clients.CoreV1().Pods(b.pod.Namespace).Patch(context.Background(), b.pod.Name, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{}, "status")
	must(b.t, err)
	return b.until(in, began)
}

// delays are those of the operator and of the bare loop, sorted.
type delays struct{ operator, bare []time.Duration }

// measure switches the pod the given number of times, there and back.
func (b *bench) measure(times int) delays {
	b.t.Helper()
	var d delays
	for range times {
		for _, in := range []bool{false, true} {
			b.rested()
			took := b.turn(in)
			d.operator, d.bare = append(d.operator, took[key.RoleWorker]), append(d.bare, took[bareSlice])
		}
	}
	slices.Sort(d.operator)
	slices.Sort(d.bare)
	return d
}

// percentile is the value that p of 100 sorted values do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

// String is what there is to know of the delays.
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

// BenchmarkPodReadyToEndpoint is from a pod that is Ready, or is not any more, to the EndpointSlice, with 100 idle clusters
// beside it.
func BenchmarkPodReadyToEndpoint(b *testing.B) {
	operator := theLab.Run(b, ofShard("shard in (live, idle)"))
	var idle []*living
	for _, id := range crowdIDs(many) {
		idle = append(idle, create(b, crowd, "idle", fixture.MakeCluster(id)))
	}
	l := create(b, quiet, "live", fixture.MakeCluster("live").Workers(1))
	for _, i := range idle {
		i.await(b, isTrue("WorkloadReachable"))
	}
	l.join(b, l.pod(b, "m0aaa"))
	l.join(b, l.pod(b, "w0aaa"))
	l.await(b, isTrue("Ready"))
	bench := newBench(b, l, operator)
	b.ResetTimer()
	var d delays
	passes := where.Passes(l.id)
	for b.Loop() {
		d = bench.measure(100)
	}
	b.ReportMetric(float64(where.Passes(l.id)-passes)/float64(len(d.operator)*b.N), "passes/change")
	for _, p := range []int{50, 99} {
		over := percentile(d.operator, p) - percentile(d.bare, p)
		b.ReportMetric(float64(over.Microseconds())/1000, fmt.Sprintf("ms-over-bare-p%d", p))
		b.ReportMetric(float64(percentile(d.operator, p).Microseconds())/1000, fmt.Sprintf("ms-operator-p%d", p))
	}
	b.Log(d)
	if half, most := percentile(d.operator, 50)-percentile(d.bare, 50), percentile(d.operator, 99)-percentile(d.bare, 99); half > aboveHalf || most > aboveMost {
		b.Errorf("over the bare loop it takes %s half of the time and %s most of the time, want at most %s and %s", half, most, aboveHalf, aboveMost)
	}
}
