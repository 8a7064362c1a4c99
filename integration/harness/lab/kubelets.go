package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// PlayKubelets does what kwok does not, until the context ends: it updates the condition Ready of pods from their
// readiness gates.
func (l *Lab) PlayKubelets(ctx context.Context) error {
	config := l.RESTConfig()
	config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(clients, 0)
	informer := factory.Core().V1().Pods().Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { settlePod(ctx, clients, object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { settlePod(ctx, clients, object.(*corev1.Pod)) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errors.New("the pods are not seen")
	}
	return nil
}

func settlePod(ctx context.Context, clients kubernetes.Interface, pod *corev1.Pod) {
	want := corev1.ConditionFalse
	if serves(pod) {
		want = corev1.ConditionTrue
	}
	if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil || ConditionOf(pod, corev1.PodReady) == want {
		return
	}
	_, err := clients.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType,
		conditionPatch(pod.UID, corev1.PodReady, want), metav1.PatchOptions{}, "status")
	if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		fmt.Fprintf(os.Stderr, "playing the kubelet of pod %s: %s\n", pod.Name, err)
	}
}

func serves(pod *corev1.Pod) bool {
	closed := func(g corev1.PodReadinessGate) bool { return ConditionOf(pod, g.ConditionType) != corev1.ConditionTrue }
	return ConditionOf(pod, corev1.ContainersReady) == corev1.ConditionTrue && !slices.ContainsFunc(pod.Spec.ReadinessGates, closed)
}

// ConditionOf returns the status of a pod's condition. It is empty when the pod has no such condition.
func ConditionOf(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return ""
	}
	return pod.Status.Conditions[i].Status
}

func conditionPatch(uid types.UID, kind corev1.PodConditionType, want corev1.ConditionStatus) []byte {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": uid},
		"status":   map[string]any{"conditions": []any{map[string]any{"type": kind, "status": want}}},
	})
	if err != nil {
		panic(err) // it consists of strings
	}
	return patch
}
