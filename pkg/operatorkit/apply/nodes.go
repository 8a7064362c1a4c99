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
)

// SetPodCondition sets one condition in the status of a pod. Its transition time becomes now if its status changes.
func (e *Engine) SetPodCondition(ctx context.Context, pod *corev1.Pod, condition corev1.PodCondition) error {
	return e.setPodCondition(ctx, pod, condition, map[string]any{"uid": pod.UID})
}

// SetPodConditionAsSeen does the same, and fails if the pod has changed since it was read.
func (e *Engine) SetPodConditionAsSeen(ctx context.Context, pod *corev1.Pod, condition corev1.PodCondition) error {
	return e.setPodCondition(ctx, pod, condition, map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion})
}

// setPodCondition sets it if the pod has the given metadata.
func (e *Engine) setPodCondition(ctx context.Context, pod *corev1.Pod, condition corev1.PodCondition, metadata map[string]any) error {
	since := metav1.NewTime(e.clock.Now())
	for _, c := range pod.Status.Conditions {
		// A condition that alternates between False and Unknown has not been True all the time.
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
	return e.ofExisting(ctx, "set the condition of", "Pod "+client.ObjectKeyFromObject(pod).String(), err,
		"type", condition.Type, "status", condition.Status, "reason", condition.Reason, "message", condition.Message)
}

// AnnotatePod sets an annotation of a pod.
func (e *Engine) AnnotatePod(ctx context.Context, pod *corev1.Pod, name, value string) error {
	return e.annotatePod(ctx, pod, map[string]any{"uid": pod.UID, "annotations": map[string]string{name: value}})
}

// AnnotatePodAsSeen does the same, and fails if the pod has changed, or is gone, since it was read.
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
		return e.wrote(ctx, "annotate", "Pod "+client.ObjectKeyFromObject(pod).String(), err)
	}
	return e.ofExisting(ctx, "annotate", "Pod "+client.ObjectKeyFromObject(pod).String(), err)
}

// LabelNode adds labels to a Node, which has no owner.
func (e *Engine) LabelNode(ctx context.Context, node *corev1.Node, labels map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID, "labels": labels}})
	if err != nil {
		return microerror.Mask(err)
	}
	err = e.client.Patch(ctx, node.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	return e.ofExisting(ctx, "label", "Node "+node.Name, err)
}

// Approve approves a certificate signing request. Its version is a precondition, so that the approved request is the
// one that was checked.
func (e *Engine) Approve(ctx context.Context, request *certificatesv1.CertificateSigningRequest, reason, message string) error {
	approved := request.DeepCopy()
	now := metav1.NewTime(e.clock.Now())
	approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		LastUpdateTime: now, LastTransitionTime: now,
	})
	err := e.client.SubResource("approval").Update(ctx, approved)
	return e.ofExisting(ctx, "approve", "CertificateSigningRequest "+request.Name, err)
}

// ofExisting describes the error of a request for an object. If the object has been deleted or recreated in the
// meantime, there is nothing to do.
func (e *Engine) ofExisting(ctx context.Context, verb, ref string, err error, more ...any) error {
	if apierrors.IsNotFound(err) || madeAnew(err) {
		return nil
	}
	return e.wrote(ctx, verb, ref, err, more...)
}

// Cordon marks a Node as unschedulable.
func (e *Engine) Cordon(ctx context.Context, node *corev1.Node) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID}, "spec": map[string]any{"unschedulable": true}})
	if err != nil {
		return microerror.Mask(err)
	}
	err = e.client.Patch(ctx, node.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	return e.ofExisting(ctx, "cordon", "Node "+node.Name, err)
}

// Evict evicts a pod, as far as its disruption budgets allow. An eviction that is refused for now returns the API
// server's error, "too many requests", as it is.
func (e *Engine) Evict(ctx context.Context, pod *corev1.Pod) error {
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	}
	err := e.client.SubResource("eviction").Create(ctx, pod.DeepCopy(), eviction)
	if apierrors.IsTooManyRequests(err) {
		return err
	}
	return e.ofExisting(ctx, "evict", "Pod "+client.ObjectKeyFromObject(pod).String(), err)
}

// PodRuns asks the API server, not the cache, whether a pod of that name exists and has not ended.
func (e *Engine) PodRuns(ctx context.Context, namespace, name string) (bool, error) {
	pod := &corev1.Pod{}
	err := e.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed, microerror.Mask(err)
}

// DeleteNode deletes a Node on which nothing runs. Its version is a precondition: a Node that has come back in the
// meantime is kept.
func (e *Engine) DeleteNode(ctx context.Context, node *corev1.Node) error {
	err := e.client.Delete(ctx, node.DeepCopy(), client.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion})
	return e.ofExisting(ctx, "delete", "Node "+node.Name, err)
}

// DeletePod deletes a pod; its finalizers are honored.
func (e *Engine) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	err := e.client.Delete(ctx, pod.DeepCopy(), client.Preconditions{UID: &pod.UID})
	return e.ofExisting(ctx, "delete", "Pod "+client.ObjectKeyFromObject(pod).String(), err)
}

// RemovePodFinalizer removes a finalizer from a pod.
func (e *Engine) RemovePodFinalizer(ctx context.Context, pod *corev1.Pod, finalizer string) error {
	changed := pod.DeepCopy()
	if !controllerutil.RemoveFinalizer(changed, finalizer) {
		return nil
	}
	err := e.client.Patch(ctx, changed, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}))
	return e.ofExisting(ctx, "remove the finalizer of", "Pod "+client.ObjectKeyFromObject(pod).String(), err)
}
