package living_test

import (
	"context"
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/service"
)

// TestOverlappingNetworksMakeNoMachine: the status names the networks that overlap.
func TestOverlappingNetworksMakeNoMachine(t *testing.T) {
	t.Parallel()
	for id, settings := range map[string]func(*service.Config){
		"overp": func(c *service.Config) { c.Settings.PodCIDRs = []string{"10.244.0.0/16", "192.168.128.0/20"} },
		"overs": func(c *service.Config) { c.Settings.ServiceCIDRs = []string{"172.16.0.0/12"} },
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			theLab.Run(t, ofShard("shard="+id), settings)
			l := create(t, crowd, id, fixture.MakeCluster(id).Workers(1))
			l.await(t,
				wanted{kind: "InfrastructureReady", status: metav1.ConditionFalse, reason: "NetworkConflict", parts: []string{"of the management cluster"}},
				wanted{kind: "Stalled", status: metav1.ConditionTrue, reason: "NetworkConflict"},
				wanted{kind: "NodesReady", status: metav1.ConditionUnknown, reason: "Blocked"})
			var machines appsv1.DeploymentList
			must(t, theLab.Client.List(t.Context(), &machines, client.InNamespace(key.Namespace(id))))
			if len(machines.Items) > 0 {
				t.Errorf("machines were made: %v", machines.Items)
			}
		})
	}
}

// TestNodeThatHangsSaysWhy: the status has the messages of its host and of its runner.
func TestNodeThatHangsSaysWhy(t *testing.T) {
	t.Parallel()
	for id, c := range map[string]struct {
		container corev1.ContainerStatus
		parts     []string
	}{
		"image": {
			corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "ImagePullBackOff", Message: `Back-off pulling image "example.com/runner:1": ErrImagePull: pull access denied`,
			}}},
			[]string{"PullingRunner: ", "the host cannot pull the runner's image", "pull access denied"},
		},
		"failed": {
			corev1.ContainerStatus{
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: 21, Reason: "Error",
					Message: "QEMUCrashed: QEMU has ended by itself\n\nconsole:\nKernel panic - not syncing: no root\n",
				}},
			},
			[]string{"Failed: ", "QEMUCrashed: QEMU has ended by itself", "Kernel panic - not syncing: no root"},
		},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			theLab.Run(t, ofShard("shard="+id))
			l := create(t, crowd, id, fixture.MakeCluster(id))
			pod := l.pod(t, "m0aaa")
			c.container.Name, c.container.Image = nodestep.Container, "example.com/runner:1"
			l.stop(t, pod, c.container)
			l.awaitMessage(t, "m0aaa", c.parts...)
			l.await(t, wanted{kind: "NodesReady", status: metav1.ConditionFalse, reason: "NodesNotReady", parts: c.parts[:2]})
		})
	}
}

// stop makes the runner of a pod one that does not run.
func (l *living) stop(t testing.TB, pod *corev1.Pod, runner corev1.ContainerStatus) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"containerStatuses": []corev1.ContainerStatus{runner},
		"conditions": []any{
			map[string]any{"type": corev1.ContainersReady, "status": corev1.ConditionFalse},
			map[string]any{"type": corev1.PodReady, "status": corev1.ConditionFalse},
		},
	}})
	must(t, err)
	must(t, theLab.Client.Status().Patch(context.Background(), pod, client.RawPatch("application/merge-patch+json", mergeConditions(t, pod, patch))))
}

// mergeConditions keeps the pod's other conditions, which a merge patch would replace.
func mergeConditions(t testing.TB, pod *corev1.Pod, patch []byte) []byte {
	t.Helper()
	var changed struct{ Status corev1.PodStatus }
	must(t, json.Unmarshal(patch, &changed))
	for _, c := range pod.Status.Conditions {
		if lab.ConditionOf(&corev1.Pod{Status: changed.Status}, c.Type) == "" {
			changed.Status.Conditions = append(changed.Status.Conditions, c)
		}
	}
	text, err := json.Marshal(map[string]any{"status": map[string]any{
		"containerStatuses": changed.Status.ContainerStatuses, "conditions": changed.Status.Conditions,
	}})
	must(t, err)
	return text
}
