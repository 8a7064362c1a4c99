package outage_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/service"
)

// TestHostDies: pods of a host that no longer reports may still run. So the node pod stays and says why, and no other
// machine replaces it until an administrator sets the taint out-of-service, which says that the host is off.
func TestHostDies(t *testing.T) {
	t.Parallel()
	mc, err := lab.Start(t.Context(), managementcluster.Options{ControllerManager: true, Scheduler: true, Kwok: true})
	must(t, err)
	t.Cleanup(func() { must(t, mc.Stop()) })
	worker := map[string]string{key.LabelManagementNodesRole: key.RoleWorker}
	_, err = mc.AddNodes(t.Context(), 1, map[string]string{key.LabelManagementNodesRole: key.RoleMaster})
	must(t, err)
	// Nothing plays its kubelet, so the host is declared dead after its timeout.
	doomed := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "doomed", Labels: worker}}
	must(t, mc.Client.Create(t.Context(), doomed))
	says(t, mc, doomed)
	mc.Run(t, func(c *service.Config) {
		c.Release = func(ctx context.Context, namespace, name string) error {
			pod := &corev1.Pod{}
			if err := mc.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
				return err
			}
			if pod.Spec.NodeName == doomed.Name {
				return errors.New("its host does not answer")
			}
			return mc.Release(ctx, namespace, name)
		}
	})
	config := fixture.MakeCluster("death").Workers(1).Obj()
	mc.Create(t, config)
	lab.Eventually(t, lab.Timeout, func() error { return bound(t, mc, doomed.Name) })
	begins(t, mc, podOf(t, mc, "w0aaa"))
	mc.AwaitReady(t, config)

	_, err = mc.AddNodes(t.Context(), 1, worker)
	must(t, err)
	lab.Eventually(t, 2*time.Minute, func() error {
		must(t, mc.Client.Get(t.Context(), client.ObjectKeyFromObject(doomed), doomed))
		for _, c := range doomed.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
				return nil
			}
		}
		return fmt.Errorf("the host is not missed: %+v", doomed.Status.Conditions)
	})
	dead := podOf(t, mc, "w0aaa")
	must(t, mc.Client.Delete(t.Context(), dead.DeepCopy()))
	lab.Eventually(t, lab.Timeout, func() error {
		must(t, mc.Client.Get(t.Context(), client.ObjectKeyFromObject(dead), dead))
		for _, c := range dead.Status.Conditions {
			if c.Type == key.ConditionDrained && c.Reason == string(drain.ReleaseFailed) {
				return nil
			}
		}
		return fmt.Errorf("pod %s does not say why it stays: %+v", dead.Name, dead.Status.Conditions)
	})
	if !controllerutil.ContainsFinalizer(dead, key.FinalizerDrainer) || dead.Spec.NodeName != doomed.Name {
		t.Errorf("pod %s on host %s is not held: %v", dead.Name, dead.Spec.NodeName, dead.Finalizers)
	}

	must(t, mc.Client.Get(t.Context(), client.ObjectKeyFromObject(doomed), doomed))
	doomed.Spec.Taints = append(doomed.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
	must(t, mc.Client.Update(t.Context(), doomed))
	lab.Eventually(t, 2*time.Minute, func() error {
		if pod := podOf(t, mc, "w0aaa"); pod == nil || pod.Name == dead.Name || pod.Spec.NodeName == doomed.Name {
			return fmt.Errorf("the node has not moved: %+v", pod)
		}
		return nil
	})
	mc.AwaitReady(t, config)
}

// says makes a host Ready once, as its kubelet does.
func says(t *testing.T, mc *lab.Lab, host *corev1.Node) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		if err := mc.Client.Get(t.Context(), client.ObjectKeyFromObject(host), host); err != nil {
			return err
		}
		host.Status.Capacity = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi"), corev1.ResourcePods: resource.MustParse("110"),
			corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"),
		}
		host.Status.Allocatable = host.Status.Capacity
		host.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}}
		return mc.Client.Status().Update(t.Context(), host)
	})
}

// podOf returns the pod of a node, nil when there is none, and any of them while one replaces another.
func podOf(t *testing.T, mc *lab.Lab, node string) *corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	must(t, mc.Client.List(context.Background(), &pods, client.MatchingLabels{key.LabelNode: node}))
	if len(pods.Items) == 0 {
		return nil
	}
	return &pods.Items[0]
}

func bound(t *testing.T, mc *lab.Lab, host string) error {
	t.Helper()
	if pod := podOf(t, mc, "w0aaa"); pod == nil || pod.Spec.NodeName != host {
		return fmt.Errorf("the node has no pod on host %s: %+v", host, pod)
	}
	return nil
}

// begins makes a pod run as its host does.
func begins(t *testing.T, mc *lab.Lab, pod *corev1.Pod) {
	t.Helper()
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.30.0.1"
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: nodestep.Container, Ready: true, Image: "runner", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue})
	}
	must(t, mc.Client.Status().Update(context.Background(), pod))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
