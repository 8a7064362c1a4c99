package apply

import (
	"context"
	"encoding/json"

	"github.com/giantswarm/microerror"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kvm-operator/kvm-operator/pkg/joining"
)

// SetPodCondition sets one condition in the status of a pod, as of now when its status is another one.
func (e *Engine) SetPodCondition(ctx context.Context, pod *corev1.Pod, condition corev1.PodCondition) error {
	return e.setPodCondition(ctx, pod, condition, map[string]any{"uid": pod.UID})
}

// SetPodConditionAsSeen does the same, and fails when the pod has changed since it was read.
func (e *Engine) SetPodConditionAsSeen(ctx context.Context, pod *corev1.Pod, condition corev1.PodCondition) error {
	return e.setPodCondition(ctx, pod, condition, map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion})
}

// setPodCondition sets it if the metadata are those of the pod.
func (e *Engine) setPodCondition(ctx context.Context, pod *corev1.Pod, condition corev1.PodCondition, metadata map[string]any) error {
	since := metav1.NewTime(e.clock.Now())
	for _, c := range pod.Status.Conditions {
		// What alternates between False and Unknown is all the time not True.
		same := (c.Status == corev1.ConditionTrue) == (condition.Status == corev1.ConditionTrue)
		if c.Type == condition.Type && same && !c.LastTransitionTime.IsZero() {
			since = c.LastTransitionTime
		}
	}
	fields := map[string]any{
		"type": condition.Type, "status": condition.Status, "reason": condition.Reason, "message": condition.Message,
		"lastTransitionTime": since,
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": metadata, "status": map[string]any{"conditions": []any{fields}},
	})
	if err != nil {
		return microerror.Mask(err)
	}
	err = e.client.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch))
	return ofExisting(ctx, "set the condition of", "Pod "+client.ObjectKeyFromObject(pod).String(), err,
		"type", condition.Type, "status", condition.Status, "reason", condition.Reason, "message", condition.Message)
}

// AnnotatePod sets an annotation of a pod.
func (e *Engine) AnnotatePod(ctx context.Context, pod *corev1.Pod, name, value string) error {
	return e.annotatePod(ctx, pod, map[string]any{"uid": pod.UID, "annotations": map[string]string{name: value}})
}

// AnnotatePodAsSeen does the same, and fails when the pod has changed, or gone, since it was read.
func (e *Engine) AnnotatePodAsSeen(ctx context.Context, pod *corev1.Pod, name, value string) error {
	metadata := map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": map[string]string{name: value}}
	return e.annotatePod(ctx, pod, metadata)
}

func (e *Engine) annotatePod(ctx context.Context, pod *corev1.Pod, metadata map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return microerror.Mask(err)
	}
	err = e.client.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	if _, seen := metadata["resourceVersion"]; seen {
		return wrote(ctx, "annotate", "Pod "+client.ObjectKeyFromObject(pod).String(), err)
	}
	return ofExisting(ctx, "annotate", "Pod "+client.ObjectKeyFromObject(pod).String(), err)
}

// LabelNode adds labels to a Node, which nobody owns.
func (e *Engine) LabelNode(ctx context.Context, node *corev1.Node, labels map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID, "labels": labels}})
	if err != nil {
		return microerror.Mask(err)
	}
	err = e.client.Patch(ctx, node.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	return ofExisting(ctx, "label", "Node "+node.Name, err)
}

// Approve approves a request for a certificate. Its version is a precondition: what was judged is what is approved.
func (e *Engine) Approve(ctx context.Context, request *certificatesv1.CertificateSigningRequest, reason, message string) error {
	approved := request.DeepCopy()
	now := metav1.NewTime(e.clock.Now())
	approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		LastUpdateTime: now, LastTransitionTime: now,
	})
	err := e.client.SubResource("approval").Update(ctx, approved)
	return ofExisting(ctx, "approve", "CertificateSigningRequest "+request.Name, err)
}

// ofExisting describes what became of a request for an object that may have gone in the meantime, or been made anew: then
// there is nothing to do.
func ofExisting(ctx context.Context, verb, ref string, err error, more ...any) error {
	if apierrors.IsNotFound(err) || madeAnew(err) {
		return nil
	}
	return wrote(ctx, verb, ref, err, more...)
}

// Cordon keeps new pods away from a Node.
func (e *Engine) Cordon(ctx context.Context, node *corev1.Node) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID}, "spec": map[string]any{"unschedulable": true}})
	if err != nil {
		return microerror.Mask(err)
	}
	err = e.client.Patch(ctx, node.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	return ofExisting(ctx, "cordon", "Node "+node.Name, err)
}

// Evict asks a pod to go, as its disruption budgets allow. An eviction that is refused for now is an error of the API server,
// "too many requests", as it came.
func (e *Engine) Evict(ctx context.Context, pod *corev1.Pod) error {
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	}
	err := e.client.SubResource("eviction").Create(ctx, pod.DeepCopy(), eviction)
	if apierrors.IsTooManyRequests(err) {
		return err
	}
	return ofExisting(ctx, "evict", "Pod "+client.ObjectKeyFromObject(pod).String(), err)
}

// PodRuns asks the API server, not the cache, whether there is a pod of that name that has not ended.
func (e *Engine) PodRuns(ctx context.Context, namespace, name string) (bool, error) {
	pod := &corev1.Pod{}
	err := e.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && !joining.Ended(pod), microerror.Mask(err)
}

// DeleteNode removes a Node that nothing runs on any more. Its version is a precondition: one that has come back in the
// meantime stays.
func (e *Engine) DeleteNode(ctx context.Context, node *corev1.Node) error {
	err := e.client.Delete(ctx, node.DeepCopy(), client.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion})
	return ofExisting(ctx, "delete", "Node "+node.Name, err)
}

// DeletePod deletes a pod; its finalizers are honoured.
func (e *Engine) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	err := e.client.Delete(ctx, pod.DeepCopy(), client.Preconditions{UID: &pod.UID})
	return ofExisting(ctx, "delete", "Pod "+client.ObjectKeyFromObject(pod).String(), err)
}

// RemovePodFinalizer takes a finalizer from a pod.
func (e *Engine) RemovePodFinalizer(ctx context.Context, pod *corev1.Pod, finalizer string) error {
	changed := pod.DeepCopy()
	if !controllerutil.RemoveFinalizer(changed, finalizer) {
		return nil
	}
	err := e.client.Patch(ctx, changed, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}))
	return ofExisting(ctx, "remove the finalizer of", "Pod "+client.ObjectKeyFromObject(pod).String(), err)
}
