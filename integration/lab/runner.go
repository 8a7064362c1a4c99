package lab

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ended is the status of a node pod whose runner has powered its machine down.
const ended = `{"status":{"containerStatuses":[{"name":"k8s-kvm","image":"","imageID":"","ready":false,"started":false,"restartCount":0,` +
	`"state":{"running":null,"terminated":{"exitCode":0,"reason":"Completed"}}}]}}`

// release plays the runner of a pod on a simulated host: its machine is down at once.
func (l *Lab) release(ctx context.Context, namespace, pod string) error {
	pods, err := corev1client.NewForConfig(l.RESTConfig())
	if err != nil {
		return err
	}
	_, err = pods.Pods(namespace).Patch(ctx, pod, types.StrategicMergePatchType, []byte(ended), metav1.PatchOptions{}, "status")
	return client.IgnoreNotFound(err)
}
