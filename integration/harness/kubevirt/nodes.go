package kubevirt

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	schedulable = "kubevirt.io/schedulable"
	heartbeat   = "kubevirt.io/heartbeat"
	// beatInterval is virt-handler's. virt-controller gives up a node after five minutes of silence.
	beatInterval = time.Minute
	kwokNode     = "kwok.x-k8s.io/node"
)

// devices are what virt-handler's device plugins announce and launcher pods ask for.
var devices = corev1.ResourceList{
	"devices.kubevirt.io/kvm":       resource.MustParse("1k"),
	"devices.kubevirt.io/tun":       resource.MustParse("1k"),
	"devices.kubevirt.io/vhost-net": resource.MustParse("1k"),
}

// nodeLabels are what virt-handler's node labeler says about a node with software emulation.
var nodeLabels = map[string]string{
	schedulable: "true", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
	"machine-type.node.kubevirt.io/q35": "true", "host-model-cpu.node.kubevirt.io/qemu64": "true",
}

// AddNode adds a simulated node on which virt-handler seems to run, with the given memory, such as 64Gi, and returns its
// name when it can run virtual machines.
func (k *KubeVirt) AddNode(ctx context.Context, memory string) (string, error) {
	quantity, err := resource.ParseQuantity(memory)
	if err != nil {
		return "", fmt.Errorf("adding a node with memory %q: %w", memory, err)
	}
	resources := maps.Clone(devices)
	resources[corev1.ResourceMemory] = quantity
	names, err := k.cluster.AddNodesWith(ctx, 1, nodeLabels, resources)
	if err != nil {
		return "", err
	}
	name := names[0]
	if err := k.handler.beat(ctx, name, time.Now()); err != nil {
		return "", err
	}
	k.setAlive(name, true)
	return name, nil
}

// LoseNode makes a node as one whose host is dead: kubelet and virt-handler are silent, and the last heartbeat of
// virt-handler is an hour old (it would have to be five minutes). The node's Ready condition is Unknown and its pods are
// not ready at once; the node controller would see to both after 50 s. What follows is done by the real controllers.
func (k *KubeVirt) LoseNode(ctx context.Context, name string) error {
	k.setAlive(name, false)
	err := k.annotate(ctx, name, nil)
	if err == nil {
		err = k.handler.beat(ctx, name, time.Now().Add(-time.Hour))
	}
	if err == nil {
		err = k.silence(ctx, name)
	}
	if err == nil {
		err = k.podsReady(ctx, name, corev1.ConditionFalse)
	}
	if err != nil {
		return fmt.Errorf("losing node %s: %w", name, err)
	}
	return nil
}

// FindNode ends what LoseNode has begun: kubelet and virt-handler of the node report again.
func (k *KubeVirt) FindNode(ctx context.Context, name string) error {
	err := k.annotate(ctx, name, "fake")
	if err == nil {
		err = k.handler.beat(ctx, name, time.Now())
	}
	if err == nil {
		err = k.podsReady(ctx, name, corev1.ConditionTrue)
	}
	if err != nil {
		return fmt.Errorf("finding node %s: %w", name, err)
	}
	k.setAlive(name, true)
	return nil
}

// silence makes the conditions of a node Unknown.
func (k *KubeVirt) silence(ctx context.Context, name string) error {
	node := &corev1.Node{}
	if err := k.admin.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	before := client.MergeFrom(node.DeepCopy())
	for i := range node.Status.Conditions {
		condition := &node.Status.Conditions[i]
		condition.Status, condition.Reason = corev1.ConditionUnknown, "NodeStatusUnknown"
		condition.Message, condition.LastTransitionTime = "Kubelet stopped posting node status.", metav1.Now()
	}
	return k.admin.Status().Patch(ctx, node, before)
}

// podsReady sets the Ready condition of all pods on a node.
func (k *KubeVirt) podsReady(ctx context.Context, name string, status corev1.ConditionStatus) error {
	pods := &corev1.PodList{}
	if err := k.admin.List(ctx, pods, client.MatchingFields{"spec.nodeName": name}); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		before := client.MergeFrom(pod.DeepCopy())
		for i := range pod.Status.Conditions {
			if condition := &pod.Status.Conditions[i]; condition.Type == corev1.PodReady {
				condition.Status, condition.LastTransitionTime = status, metav1.Now()
			}
		}
		if err := client.IgnoreNotFound(k.admin.Status().Patch(ctx, &pod, before)); err != nil {
			return err
		}
	}
	return nil
}

// annotate says whether kwok plays the kubelet of a node: value is "fake" or nil.
func (k *KubeVirt) annotate(ctx context.Context, name string, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{kwokNode: value}}})
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return k.admin.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))
}

// beat keeps the heartbeats of the living nodes young until k.end is called.
func (k *KubeVirt) beat() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	k.end = func() { cancel(); <-ended }
	go func() {
		defer close(ended)
		ticker := time.NewTicker(beatInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			for _, name := range k.alive() {
				if err := k.handler.beat(ctx, name, time.Now()); err != nil && ctx.Err() == nil {
					k.say("%v", err)
				}
			}
		}
	}()
}

func (k *KubeVirt) setAlive(name string, alive bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if alive {
		k.beats[name] = true
	} else {
		delete(k.beats, name)
	}
}

func (k *KubeVirt) alive() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.beats))
}
