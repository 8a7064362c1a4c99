package kubevirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
)

const (
	handlerAccount = "kubevirt-handler"
	handlerWorkers = 4
)

var instances = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachineinstances"}

// The phases of an instance (VirtualMachineInstancePhase of KubeVirt's API) that virt-handler reads or writes.
const (
	Scheduled = "Scheduled"
	Running   = "Running"
	Succeeded = "Succeeded"
	Failed    = "Failed"
)

// Handler is a fake. It plays virt-handler, which runs on every node, starts guests in launcher pods and reports on
// them. Here no guest runs: launcher pods run on nodes that kwok simulates. Handler takes over instances when
// virt-controller has scheduled them, and reports what virt-handler would. It is the user that virt-handler's service
// account is, so the real roles and webhooks judge its reports. What it reports of guests is invented, except MAC
// addresses, which are those of the instance, and the address on the pod network, which is the launcher pod's. It says
// of live migration only what follows from the claims, and no migration takes place.
//
// Unless a test says otherwise, guests boot at once, get their addresses, and end at once when they should.
type Handler struct {
	dynamic dynamic.Interface    // as virt-handler
	nodes   kubernetes.Interface // as virt-handler
	pods    kubernetes.Interface // as administrator: virt-handler asks its own node for the address of a pod
	running func()               // ends the workers; nil while they do not run

	mu    sync.Mutex // guards plans, store and queue
	plans map[types.NamespacedName]*plan
	store cache.Store
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]
}

// plan is what happens to the guests of one virtual machine.
type plan struct {
	crashes       int  // so many next boots fail
	bootHeld      bool // guests do not boot
	endHeld       bool // guests do not end when they should
	addressesHeld bool // guests report no addresses
	addresses     map[string][]string
}

func newHandler(cluster *managementcluster.Cluster) (*Handler, error) {
	config, err := configFor(cluster, handlerAccount)
	if err != nil {
		return nil, err
	}
	h := &Handler{plans: map[types.NamespacedName]*plan{}}
	h.dynamic, err = dynamic.NewForConfig(config)
	if err == nil {
		h.nodes, err = kubernetes.NewForConfig(config)
	}
	if err == nil {
		h.pods, err = kubernetes.NewForConfig(cluster.RESTConfig())
	}
	if err != nil {
		return nil, fmt.Errorf("making clients of virt-handler: %w", err)
	}
	return h, nil
}

// start starts the workers and returns when they know all instances. The context limits only the start.
func (h *Handler) start(starting context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	factory := dynamicinformer.NewDynamicSharedInformerFactory(h.dynamic, 0)
	informer := factory.ForResource(instances).Informer()
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](20*time.Millisecond, time.Second))
	enqueue := func(object any) {
		if instance, ok := object.(*unstructured.Unstructured); ok {
			queue.Add(client.ObjectKeyFromObject(instance))
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) },
	})
	if err != nil {
		cancel()
		return fmt.Errorf("watching instances as virt-handler: %w", err)
	}
	h.mu.Lock()
	h.store, h.queue = informer.GetStore(), queue
	h.mu.Unlock()
	var workers sync.WaitGroup
	for range handlerWorkers {
		workers.Go(func() { h.work(ctx, queue) })
	}
	factory.Start(ctx.Done())
	h.running = func() {
		cancel()
		queue.ShutDown()
		workers.Wait()
		factory.Shutdown()
	}
	if !cache.WaitForCacheSync(starting.Done(), informer.HasSynced) {
		return errors.New("watching instances as virt-handler: the watch does not start")
	}
	return nil
}

// stop ends the workers. It may be called again.
func (h *Handler) stop() {
	if h.running != nil {
		h.running()
		h.running = nil
		h.mu.Lock()
		h.store, h.queue = nil, nil
		h.mu.Unlock()
	}
}

func (h *Handler) work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[types.NamespacedName]) {
	for {
		key, ended := queue.Get()
		if ended {
			return
		}
		if err := h.sync(ctx, key); err != nil {
			queue.AddRateLimited(key) // mostly a conflict with virt-controller
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

// sync reports on one instance if there is something new.
func (h *Handler) sync(ctx context.Context, key types.NamespacedName) error {
	instance := h.instance(key)
	if instance == nil {
		return nil
	}
	planned := h.planOf(key)
	changed := instance.DeepCopy()
	report := &report{instance: changed, plan: planned}
	crashed := false
	switch ending, phase := instance.GetDeletionTimestamp() != nil, report.phase(); {
	case phase != Scheduled && phase != Running:
		return nil
	case ending && planned.endHeld:
		return nil
	case ending:
		report.enter(Succeeded)
	case phase == Scheduled && planned.bootHeld:
		return nil
	case phase == Scheduled && planned.crashes > 0:
		report.enter(Failed)
		crashed = true
	default:
		address, err := h.podAddress(ctx, instance)
		if err != nil {
			return err
		}
		report.run(address)
	}
	if reflect.DeepEqual(instance.Object, changed.Object) {
		return nil
	}
	_, err := h.dynamic.Resource(instances).Namespace(key.Namespace).Update(ctx, changed, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil && crashed {
		h.change(key, func(p *plan) { p.crashes-- })
	}
	return err
}

// podAddress returns the address of the launcher pod of an instance, empty while there is none.
func (h *Handler) podAddress(ctx context.Context, instance *unstructured.Unstructured) (string, error) {
	pods, err := h.pods.CoreV1().Pods(instance.GetNamespace()).List(ctx, metav1.ListOptions{
		LabelSelector: "kubevirt.io=virt-launcher,kubevirt.io/created-by=" + string(instance.GetUID()), ResourceVersion: "0",
	})
	if err != nil {
		return "", fmt.Errorf("reading the launcher pod of %s: %w", instance.GetName(), err)
	}
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodRunning {
			return pod.Status.PodIP, nil
		}
	}
	return "", nil
}

// update changes the status of the present instance of a virtual machine, which must be in one of the phases. It waits
// for such an instance until the context ends.
func (h *Handler) update(
	ctx context.Context, machine types.NamespacedName, change func(*report), phases ...string,
) error {
	return poll.Until(ctx, pollInterval, nil, func(ctx context.Context) error {
		instance := h.instance(machine)
		if instance == nil {
			return fmt.Errorf("%s has no instance", machine)
		}
		report := &report{instance: instance.DeepCopy()}
		if !slices.Contains(phases, report.phase()) {
			return fmt.Errorf("the instance of %s is %s, not %v", machine, report.phase(), phases)
		}
		change(report)
		_, err := h.dynamic.Resource(instances).Namespace(machine.Namespace).
			Update(ctx, report.instance, metav1.UpdateOptions{})
		return err
	})
}

// instance returns the cached instance of a virtual machine, which nothing may change, or nil.
func (h *Handler) instance(machine types.NamespacedName) *unstructured.Unstructured {
	h.mu.Lock()
	store := h.store
	h.mu.Unlock()
	if store == nil {
		return nil
	}
	object, exists, err := store.GetByKey(machine.String())
	if err != nil || !exists {
		return nil
	}
	instance, _ := object.(*unstructured.Unstructured)
	return instance
}

// beat reports as virt-handler that a node was alive at a time.
func (h *Handler) beat(ctx context.Context, node string, at time.Time) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels":      map[string]any{schedulable: "true"},
		"annotations": map[string]any{heartbeat: at.UTC().Format(time.RFC3339)},
	}})
	if err == nil {
		_, err = h.nodes.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing the heartbeat of node %s: %w", node, err)
	}
	return nil
}
