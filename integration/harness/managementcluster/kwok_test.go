package managementcluster_test

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
)

const finalizer = "example.com/drain"

func TestPodsLiveAndDieOnSimulatedNodes(t *testing.T) {
	cluster := start(t, managementcluster.Options{ControllerManager: true, Scheduler: true, Kwok: true})
	client := core(t, cluster)
	for _, role := range []string{"master", "worker"} {
		names, err := cluster.AddNodes(t.Context(), 2, map[string]string{"role": role})
		if err != nil {
			t.Fatal(err)
		}
		if len(names) != 2 {
			t.Fatalf("AddNodes made %v, want 2 nodes", names)
		}
	}
	createNamespace(t, client, "demo")
	createDeployment(t, cluster, "demo", 6)

	pods := awaitPods(t, client, "demo", 6, podReady)
	addresses := map[string]string{}
	for _, pod := range pods {
		if pod.Status.PodIP == "" || addresses[pod.Status.PodIP] != "" {
			t.Errorf("pods %s and %q have the same address %q", pod.Name, addresses[pod.Status.PodIP], pod.Status.PodIP)
		}
		addresses[pod.Status.PodIP] = pod.Name
		node, err := client.Nodes().Get(t.Context(), pod.Spec.NodeName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if node.Labels["role"] != "worker" {
			t.Errorf("pod %s, which selects workers, runs on %s with labels %v", pod.Name, node.Name, node.Labels)
		}
	}

	t.Run("a deleted pod with a finalizer runs until the finalizer is gone", func(t *testing.T) {
		finalizerHoldsPod(t, client, pods[0])
	})
	t.Run("a deleted namespace really ends", func(t *testing.T) {
		// The owner of the finalizers removes them, which is the test here.
		for _, pod := range awaitPods(t, client, "demo", 6, podReady) {
			removeFinalizers(t, client, pod)
		}
		if err := client.Namespaces().Delete(t.Context(), "demo", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		await(t, "the end of namespace demo", func(ctx context.Context) bool {
			_, err := client.Namespaces().Get(ctx, "demo", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	})
}

func finalizerHoldsPod(t *testing.T, client corev1client.CoreV1Interface, pod corev1.Pod) {
	t.Helper()
	if err := client.Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// The replacement shows that controllers have seen the deletion. kwok has had the same time.
	awaitPods(t, client, pod.Namespace, 6, podReady)
	held, err := client.Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if held.DeletionTimestamp == nil || !podReady(*held) {
		t.Errorf("the held pod has deletion timestamp %v and status %+v, want it to run on", held.DeletionTimestamp, held.Status)
	}
	removeFinalizers(t, client, *held)
	await(t, "the end of pod "+pod.Name, func(ctx context.Context) bool {
		_, err := client.Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func TestAddNodesNeedsKwok(t *testing.T) {
	cluster := start(t, managementcluster.Options{})
	if _, err := cluster.AddNodes(t.Context(), 1, nil); err == nil {
		t.Error("AddNodes succeeded without kwok")
	}
}

// createDeployment creates pods like the operator's node pods: with a readiness gate, a finalizer, a long grace period
// and a node selector.
func createDeployment(t *testing.T, cluster *managementcluster.Cluster, namespace string, replicas int32) {
	t.Helper()
	client, err := appsv1client.NewForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "worker"}
	_, err = client.Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "worker"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Finalizers: []string{finalizer}},
				Spec: corev1.PodSpec{
					NodeSelector:                  map[string]string{"role": "worker"},
					ReadinessGates:                []corev1.PodReadinessGate{{ConditionType: "example.com/joined"}},
					TerminationGracePeriodSeconds: ptr.To[int64](600),
					InitContainers:                []corev1.Container{{Name: "prepare", Image: "example.com/prepare"}},
					Containers:                    []corev1.Container{{Name: "machine", Image: "example.com/machine"}},
				},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// podReady reports whether a pod runs and is Ready with every readiness gate True.
func podReady(pod corev1.Pod) bool {
	conditions := map[corev1.PodConditionType]bool{}
	for _, condition := range pod.Status.Conditions {
		conditions[condition.Type] = condition.Status == corev1.ConditionTrue
	}
	for _, gate := range pod.Spec.ReadinessGates {
		if !conditions[gate.ConditionType] {
			return false
		}
	}
	return pod.Status.Phase == corev1.PodRunning && conditions[corev1.PodReady] && pod.Status.PodIP != ""
}

// awaitPods waits until exactly n pods that are not being deleted meet a condition, and returns them.
func awaitPods(
	t *testing.T, client corev1client.PodsGetter, namespace string, n int, condition func(corev1.Pod) bool,
) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	await(t, "ready pods", func(ctx context.Context) bool {
		list, err := client.Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Log(err)
			return false
		}
		pods = nil
		for _, pod := range list.Items {
			if pod.DeletionTimestamp == nil && condition(pod) {
				pods = append(pods, pod)
			}
		}
		return len(pods) == n
	})
	return pods
}

func removeFinalizers(t *testing.T, client corev1client.PodsGetter, pod corev1.Pod) {
	t.Helper()
	_, err := client.Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, condition func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) { return condition(ctx), nil })
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}
