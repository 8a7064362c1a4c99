package lab

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// ended is the status of a node pod after its runner has powered its machine down and its kubelet has seen that nothing
// of it runs.
const ended = `{"status":{"phase":"Succeeded","containerStatuses":[{"name":"k8s-kvm","image":"","imageID":"","ready":false,"started":false,"restartCount":0,` +
	`"state":{"running":null,"terminated":{"exitCode":0,"reason":"Completed"}}}]}}`

// Release plays the runner of a pod on a simulated host, whose machine is down at once.
func (l *Lab) Release(ctx context.Context, namespace, pod string) error {
	pods, err := corev1client.NewForConfig(l.RESTConfig())
	if err != nil {
		return err
	}
	_, err = pods.Pods(namespace).Patch(ctx, pod, types.StrategicMergePatchType, []byte(ended), metav1.PatchOptions{}, "status")
	return client.IgnoreNotFound(err)
}

// playDrainer releases deleted pods, because the operators of a Driver have no drainer and no host runs their machines.
func (l *Lab) playDrainer(ctx context.Context, c cache.Cache) error {
	informer, err := c.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return err
	}
	release := func(object any) {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.DeletionTimestamp == nil {
			return
		}
		changed := pod.DeepCopy()
		if controllerutil.RemoveFinalizer(changed, key.FinalizerDrainer) {
			// An error here shows as a cluster that does not settle.
			_ = l.Client.Patch(ctx, changed, client.MergeFrom(pod))
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: release, UpdateFunc: func(_, object any) { release(object) }})
	return err
}
