package drainer

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// shuttingDown is in the message of the Ready condition of a Node from the moment in which its kubelet starts to end
// pods because the host shuts down (kubernetes pkg/kubelet/nodeshutdown, ShutdownStatus). The status of the pods says
// so only after they have ended.
const shuttingDown = "node is shutting down"

// shutsDown returns whether a host of the management cluster shuts down.
func shutsDown(host *corev1.Node) bool {
	for _, c := range host.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && strings.Contains(c.Message, shuttingDown) {
			return true
		}
	}
	return false
}

// stays returns whether a host of the management cluster is Ready.
func stays(host *corev1.Node) bool {
	return slices.ContainsFunc(host.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// host returns the host of a pod. The cache fails only for a host that it does not have, which has no condition.
func (r *Reconciler) host(ctx context.Context, pod *corev1.Pod) *corev1.Node {
	host := &corev1.Node{}
	if r.Client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, host, client.DisableReadYourWritesConsistency) != nil {
		return &corev1.Node{}
	}
	return host
}

// hostStays returns whether the host of a pod is Ready.
func (r *Reconciler) hostStays(ctx context.Context, pod *corev1.Pod) bool {
	return stays(r.host(ctx, pod))
}

// hostGoes returns whether the host of a pod shuts down, or whether its kubelet ends the pod by itself.
func (r *Reconciler) hostGoes(ctx context.Context, pod *corev1.Pod) bool {
	return drain.EndedByHost(pod) || shutsDown(r.host(ctx, pod))
}

// onHost returns the pods that are held on a host that shuts down, and those whose release does not count on a host
// that stays.
func (r *Reconciler) onHost(ctx context.Context, object client.Object) []reconcile.Request {
	host := object.(*corev1.Node)
	goes := shutsDown(host)
	if !goes && !stays(host) {
		return nil
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName == host.Name && controllerutil.ContainsFinalizer(p, key.FinalizerDrainer) && (goes || drain.Confirmed(p)) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		}
	}
	return requests
}
