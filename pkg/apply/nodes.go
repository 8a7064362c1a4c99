package apply

import (
	"context"
	"encoding/json"

	"github.com/giantswarm/microerror"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SetPodCondition sets one condition in the status of a pod, as of now.
func (e *Engine) SetPodCondition(ctx context.Context, pod *corev1.Pod, condition corev1.PodCondition) error {
	fields := map[string]any{
		"type": condition.Type, "status": condition.Status, "reason": condition.Reason, "message": condition.Message,
		"lastTransitionTime": metav1.NewTime(e.clock.Now()),
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{"conditions": []any{fields}},
	})
	if err != nil {
		return microerror.Mask(err)
	}
	err = e.client.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch))
	return ofExisting("set the condition of", "Pod "+client.ObjectKeyFromObject(pod).String(), err)
}

// LabelNode adds labels to a Node, which nobody owns.
func (e *Engine) LabelNode(ctx context.Context, node *corev1.Node, labels map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID, "labels": labels}})
	if err != nil {
		return microerror.Mask(err)
	}
	err = e.client.Patch(ctx, node.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	return ofExisting("label", "Node "+node.Name, err)
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
	return ofExisting("approve", "CertificateSigningRequest "+request.Name, err)
}

// ofExisting describes what became of a request for an object that may have gone in the meantime, or been made anew: then
// there is nothing to do.
func ofExisting(verb, ref string, err error) error {
	if client.IgnoreNotFound(err) == nil || madeAnew(err) {
		return nil
	}
	return requestError(verb, ref, err)
}
