package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// witness sees every change of the node pods.
type witness struct {
	mu   sync.Mutex
	told map[string][]corev1.PodCondition // what the condition of a pod's drain has said, in order
	gone []string                         // the nodes whose pods went, each with the last of it
}

func newWitness(l *life, client kubernetes.Interface) *witness {
	l.t.Helper()
	w := &witness{told: map[string][]corev1.PodCondition{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(id),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = key.LabelNode }))
	pods := factory.Core().V1().Pods().Informer()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: w.see, UpdateFunc: func(_, now any) { w.see(now) }, DeleteFunc: w.leave,
	})
	if err != nil {
		l.t.Fatal(err)
	}
	factory.StartWithContext(l.ctx)
	l.t.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(l.ctx.Done(), pods.HasSynced) {
		l.t.Fatal("the node pods cannot be watched")
	}
	return w
}

func (w *witness) see(object any) {
	pod := object.(*corev1.Pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told[pod.Name]
	for _, c := range pod.Status.Conditions {
		if c.Type == key.ConditionDrained && (len(told) == 0 || told[len(told)-1].Message != c.Message) {
			w.told[pod.Name] = append(told, c)
		}
	}
}

func (w *witness) leave(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	pod := object.(*corev1.Pod)
	w.see(pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	var last corev1.PodCondition
	if told := w.told[pod.Name]; len(told) > 0 {
		last = told[len(told)-1]
	}
	w.gone = append(w.gone, departure(pod.Labels[key.LabelNode], last.Status, last.Reason))
}

// said is what the condition of a pod's drain has said.
func (w *witness) said(pod string) (messages []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.told[pod] {
		messages = append(messages, c.Reason+": "+c.Message)
	}
	return messages
}

// drained tells whether a pod's machine was let go.
func (w *witness) drained(pod string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.told[pod], func(c corev1.PodCondition) bool { return c.Status == corev1.ConditionTrue })
}

// departures are the nodes whose pods went since it was asked last, sorted, each with the last word about its drain.
func (w *witness) departures() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	gone := slices.Sorted(slices.Values(w.gone))
	w.gone = nil
	return gone
}

func departure(node string, drained corev1.ConditionStatus, reason string) string {
	return fmt.Sprintf("%s: drained %s %s", node, drained, reason)
}

// watchAvailable looks every second how many pods of the web server are available. The function that it returns ends that, and tells
// the fewest that were seen.
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

// killOperators kills the operator again and again, until the test ends, and counts.
func (o *operations) killOperators(random *rand.Rand) *atomic.Int64 {
	ctx, cancel := context.WithCancel(o.ctx)
	killed, done := &atomic.Int64{}, make(chan struct{})
	go func() {
		defer close(done)
		for pause(ctx, 15*time.Second+time.Duration(random.Int64N(int64(75*time.Second)))) {
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

// pause waits, and tells whether to go on.
func pause(ctx context.Context, wait time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}
