package e2e_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// witness sees every change of the node pods, and of the web server's pods in the machines.
type witness struct {
	mu   sync.Mutex
	told map[string][]corev1.PodCondition // the states of the condition of a pod's drain, in order
	gone []departure                      // the node pods that have disappeared
	web  map[types.UID]*corev1.Pod        // each pod of the web server that ran on a Node, its state when it was evicted, or now
}

// departure is the end of a node pod.
type departure struct {
	node, pod string
	drained   corev1.PodCondition // the last state of its drain
}

func (d departure) String() string {
	return fmt.Sprintf("%s: drained %s %s", d.node, d.drained.Status, d.drained.Reason)
}

func newWitness(l *life, outside, inside kubernetes.Interface) *witness {
	l.t.Helper()
	w := &witness{told: map[string][]corev1.PodCondition{}, web: map[types.UID]*corev1.Pod{}}
	l.follow(outside, id, key.LabelNode+","+key.LabelApp+" in ("+key.RoleMaster+","+key.RoleWorker+")", w.see, w.leave)
	l.follow(inside, metav1.NamespaceDefault, "app=web", w.seeWeb, w.seeWeb)
	return w
}

// follow passes every change of the pods with a label to see and leave.
func (l *life) follow(clients kubernetes.Interface, namespace, selector string, see, leave func(*corev1.Pod)) {
	l.t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }))
	pods := factory.Core().V1().Pods().Informer()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { see(object.(*corev1.Pod)) }, UpdateFunc: func(_, now any) { see(now.(*corev1.Pod)) },
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			leave(object.(*corev1.Pod))
		},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	factory.StartWithContext(l.ctx)
	l.t.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(l.ctx.Done(), pods.HasSynced) {
		l.t.Fatalf("the pods in namespace %s cannot be watched", namespace)
	}
}

func (w *witness) seeWeb(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// A pod that is evicted again, or deleted with its Node, was evicted before.
	if before := w.web[pod.UID]; pod.Spec.NodeName != "" && (before == nil || before.DeletionTimestamp == nil) {
		w.web[pod.UID] = pod
	}
}

// runs returns the number of the web server's pods that run on a Node.
func (w *witness) runs(node string) (count int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pod := range w.web {
		if pod.Spec.NodeName == node && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			count++
		}
	}
	return count
}

// unasked returns an error for the web server's pods that were on a machine and not evicted before its release,
// according to the workload cluster. It also returns how many pods there were.
func (w *witness) unasked(d departure) (ran int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, pod := range w.web {
		// A pod that its kubelet ended during a regular shutdown of the guest is deleted with its Node, if it was not
		// deleted before.
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if pod.Spec.NodeName != d.pod || ended {
			continue
		}
		ran++
		if pod.DeletionTimestamp == nil {
			errs = append(errs, fmt.Errorf("%s is released, and pod %s on it was never evicted", d, pod.Name))
			continue
		}
		when := pod.DeletionTimestamp.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
		if late := when.Sub(d.drained.LastTransitionTime.Time); late > clocksDiffer {
			errs = append(errs, fmt.Errorf("pod %s was asked to go %s after %s", pod.Name, late, d))
		}
	}
	return ran, errors.Join(errs...)
}

// clocksDiffer is the tolerated clock skew between a machine and its host.
const clocksDiffer = 5 * time.Second

func (w *witness) see(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told[pod.Name]
	for _, c := range pod.Status.Conditions {
		if c.Type == key.ConditionDrained && (len(told) == 0 || told[len(told)-1].Message != c.Message) {
			w.told[pod.Name] = append(told, c)
		}
	}
}

func (w *witness) leave(pod *corev1.Pod) {
	w.see(pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	var last corev1.PodCondition
	if told := w.told[pod.Name]; len(told) > 0 {
		last = told[len(told)-1]
	}
	w.gone = append(w.gone, departure{node: pod.Labels[key.LabelNode], pod: pod.Name, drained: last})
}

// said returns the messages of the condition of a pod's drain.
func (w *witness) said(pod string) (messages []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.told[pod] {
		messages = append(messages, c.Reason+": "+c.Message)
	}
	return messages
}

// drained reports whether a pod's machine was released.
func (w *witness) drained(pod string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.told[pod], func(c corev1.PodCondition) bool { return c.Status == corev1.ConditionTrue })
}

// departures returns the node pods that have disappeared since the last call, sorted by node.
func (w *witness) departures() []departure {
	w.mu.Lock()
	defer w.mu.Unlock()
	gone := w.gone
	w.gone = nil
	slices.SortFunc(gone, func(a, b departure) int { return cmp.Compare(a.node, b.node) })
	return gone
}

// watchAvailable reads every second how many pods of the web server are available. The returned function stops this and
// returns the lowest number.
func (o *operations) watchAvailable() (lowest func() int32) {
	ctx, cancel := context.WithCancel(o.ctx)
	fewest, done := int32(replicas), make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			web, err := o.inside.AppsV1().Deployments(metav1.NamespaceDefault).Get(ctx, "web", metav1.GetOptions{})
			if err == nil {
				fewest = min(fewest, web.Status.AvailableReplicas)
			}
			pause(ctx, time.Second)
		}
	}()
	return func() int32 {
		cancel()
		<-done
		return fewest
	}
}

// killOperators kills the operator repeatedly until the test ends, and counts the kills.
func (o *operations) killOperators(random *rand.Rand) *atomic.Int64 {
	ctx, cancel := context.WithCancel(o.ctx)
	killed, done := &atomic.Int64{}, make(chan struct{})
	go func() {
		defer close(done)
		// The next one works when the Lease of the previous one has expired.
		for pause(ctx, 30*time.Second+time.Duration(random.Int64N(int64(75*time.Second)))) {
			if o.KillOperator(ctx) {
				killed.Add(1)
			}
		}
	}()
	o.t.Cleanup(func() {
		cancel()
		<-done
	})
	return killed
}

// pause waits and reports whether to continue.
func pause(ctx context.Context, wait time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}
