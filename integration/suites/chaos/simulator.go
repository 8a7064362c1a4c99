package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
)

const (
	// simulatorWorkers is the number of goroutines that update the Nodes of machines.
	simulatorWorkers = 8
	// labelTenant is a label on the pods of a workload cluster with its id.
	labelTenant = "example.org/tenant"
)

// simulator plays the machines of node pods and their kubelets. A machine runs as long as the container of its pod
// does, and its Node is Ready unless it hangs. Each worker has one pod that has to terminate gracefully.
type simulator struct {
	world               *World
	management, inside  kubernetes.Interface
	machines, guestPods corev1listers.PodLister
	queue               workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu sync.Mutex
	// hung are the machines whose kubelet stopped reporting, and since when, by the name of the pod.
	hung map[string]time.Time
}

func newSimulator(ctx context.Context, w *World) (*simulator, error) {
	s := &simulator{
		world: w, hung: map[string]time.Time{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](50*time.Millisecond, time.Second)),
	}
	var err error
	if s.management, err = unbounded(w.lab.RESTConfig()); err != nil {
		return nil, err
	}
	if s.inside, err = unbounded(w.server.RESTConfig()); err != nil {
		return nil, err
	}
	// The workload clusters have no controllers that would create it.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := s.inside.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	if s.machines, err = follow(ctx, s.management, func(pod *corev1.Pod) {
		if pod.Labels[key.LabelNode] != "" {
			s.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}); err != nil {
		return nil, err
	}
	if s.guestPods, err = follow(ctx, s.inside, func(pod *corev1.Pod) { go s.endGuestPod(ctx, pod) }); err != nil {
		return nil, err
	}
	for range simulatorWorkers {
		go s.work(ctx)
	}
	go func() {
		<-ctx.Done()
		s.queue.ShutDown()
	}()
	return s, nil
}

func unbounded(config *rest.Config) (kubernetes.Interface, error) {
	config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
	return kubernetes.NewForConfig(config)
}

// follow calls see for every pod that is added, changed or deleted, and returns a lister of all pods.
func follow(ctx context.Context, clients kubernetes.Interface, see func(*corev1.Pod)) (corev1listers.PodLister, error) {
	factory := informers.NewSharedInformerFactory(clients, 0)
	pods := factory.Core().V1().Pods()
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { see(object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { see(object.(*corev1.Pod)) },
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			see(object.(*corev1.Pod))
		},
	})
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.Informer().HasSynced) {
		return nil, errors.New("the pods are not seen")
	}
	return pods.Lister(), nil
}

func (s *simulator) work(ctx context.Context) {
	for {
		name, over := s.queue.Get()
		if over {
			return
		}
		if err := s.syncNode(ctx, name); err != nil {
			s.queue.AddRateLimited(name)
		} else {
			s.queue.Forget(name)
		}
		s.queue.Done(name)
	}
}

// runs reports whether the machine of a pod is on.
func runs(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == nodestep.Container {
			return c.State.Running != nil
		}
	}
	return false
}

// syncNode updates the Node of a machine.
func (s *simulator) syncNode(ctx context.Context, name types.NamespacedName) error {
	pod, err := s.machines.Pods(name.Namespace).Get(name.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	on := err == nil && runs(pod)
	if err := s.power(name, pod, on); err != nil {
		return err
	}
	node, err := s.inside.CoreV1().Nodes().Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !on:
		return s.forget(ctx, name.Name)
	case apierrors.IsNotFound(err):
		if err := s.populate(ctx, pod); err != nil {
			return err
		}
		if node, err = s.inside.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name.Name}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	want, err := s.readiness(name, pod, on)
	if err != nil {
		return err
	}
	if len(node.Status.Conditions) == 1 && node.Status.Conditions[0].Status == want {
		return nil
	}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: want, Reason: "Simulated", Message: "the machine is simulated",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}
	_, err = s.inside.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// readiness returns what the kubelet of a machine reports, if anything.
func (s *simulator) readiness(name types.NamespacedName, pod *corev1.Pod, on bool) (corev1.ConditionStatus, error) {
	switch {
	case !on || !s.hangsSince(name.Name).IsZero():
		return corev1.ConditionUnknown, nil
	case hasEtcd(name.Namespace) && pod.Labels[key.LabelApp] == key.RoleMaster && !s.world.machines.Runs(pod):
		return "", errBoots
	}
	return corev1.ConditionTrue, nil
}

// errBoots makes the queue retry a machine soon.
var errBoots = errors.New("the machine boots")

// power switches the machine of a master on or off if it has a member of etcd.
func (s *simulator) power(name types.NamespacedName, pod *corev1.Pod, on bool) error {
	switch {
	case !hasEtcd(name.Namespace):
		return nil
	case !on:
		s.world.machines.Stop(name.Namespace, name.Name)
	case pod.Labels[key.LabelApp] == key.RoleMaster:
		return s.world.machines.Start(pod)
	}
	return nil
}

// populate puts a pod on a new worker.
func (s *simulator) populate(ctx context.Context, pod *corev1.Pod) error {
	if pod.Labels[key.LabelApp] != key.RoleWorker {
		return nil
	}
	web := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-" + pod.Name, Labels: map[string]string{labelTenant: pod.Namespace}},
		Spec:       corev1.PodSpec{NodeName: pod.Name, Containers: []corev1.Container{{Name: "web", Image: "example.com/web"}}},
	}
	web, err := s.inside.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, web, metav1.CreateOptions{})
	if err != nil {
		return ignoreExists(err)
	}
	web.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	_, err = s.inside.CoreV1().Pods(web.Namespace).UpdateStatus(ctx, web, metav1.UpdateOptions{})
	return err
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// forget removes the pods of a Node that no longer exists, as Kubernetes' garbage collection does.
func (s *simulator) forget(ctx context.Context, node string) error {
	now := int64(0)
	err := s.inside.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, "web-"+node, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// endGuestPod ends a pod that is being deleted, as the kubelet of a healthy machine does.
func (s *simulator) endGuestPod(ctx context.Context, pod *corev1.Pod) {
	if pod.DeletionTimestamp == nil || !s.hangsSince(pod.Spec.NodeName).IsZero() {
		return
	}
	pause(ctx, 100*time.Millisecond)
	now := int64(0)
	// It may be gone already. If it is not, the chaos run does not settle.
	_ = s.inside.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
}

func (s *simulator) hangsSince(name string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hung[name]
}

// unreadyFor returns how long a Node has not been Ready, as far as the operator has to know. It is very long when that
// is unknown.
func (s *simulator) unreadyFor(ctx context.Context, name string) time.Duration {
	const unknown = math.MaxInt64
	node, err := s.inside.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil || len(node.Status.Conditions) == 0 {
		return unknown // it was deleted or never existed, or the API server failed, which is not judged
	}
	since := time.Since(node.Status.Conditions[0].LastTransitionTime.Time)
	switch {
	case node.Status.Conditions[0].Status != corev1.ConditionTrue:
		return since
	case since < known:
		return unknown // before it was Ready again
	}
	return 0
}

// hang makes the kubelet of a machine stop reporting, and wake ends this.
func (s *simulator) hang(pod *corev1.Pod) {
	s.mu.Lock()
	s.hung[pod.Name] = time.Now()
	s.mu.Unlock()
	s.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
}

func (s *simulator) wake(pod *corev1.Pod) {
	s.mu.Lock()
	delete(s.hung, pod.Name)
	s.mu.Unlock()
	s.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
}

// crash ends the machine of a pod for a moment. The host then restarts its container.
func (s *simulator) crash(ctx context.Context, pod *corev1.Pod, back time.Duration) error {
	s.world.machines.Crash(pod.Namespace, pod.Name, back)
	for _, ready := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue} {
		patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"conditions":[{"type":"ContainersReady","status":%q},{"type":"Ready","status":"False"}]}}`, pod.UID, ready)
		_, err := s.management.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // it was replaced in the meantime
		}
		if err != nil {
			return err
		}
		pause(ctx, back)
	}
	return nil
}

// release simulates a runner that is permitted to shut its machine down.
func (s *simulator) release(ctx context.Context, namespace, name string) error {
	s.world.judge.checkRelease(ctx, s, namespace, name)
	s.world.machines.Release(namespace, name)
	return s.world.lab.Release(ctx, namespace, name)
}
