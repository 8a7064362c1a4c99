package apply

import (
	"context"
	"encoding/json"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// PlacePod removes a scheduling gate from a pod and binds it to the named host; an empty host leaves the choice to the
// scheduler. One request does both, so that no scheduler sees the pod ungated and unbound.
func (e *Engine) PlacePod(ctx context.Context, pod *corev1.Pod, gate, host string) error {
	spec := map[string]any{"schedulingGates": []any{map[string]any{"name": gate, "$patch": "delete"}}}
	if host != "" {
		spec["affinity"] = map[string]any{"nodeAffinity": boundTo(host)}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "spec": spec})
	if err != nil {
		return microerror.Mask(err)
	}
	err = e.client.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return e.wrote(ctx, "place", "Pod "+client.ObjectKeyFromObject(pod).String(), err, "host", host)
}

// boundTo selects the host by its name, because its label with the host name may have any value.
func boundTo(host string) *corev1.NodeAffinity {
	term := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{host}},
	}}
	return &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}},
	}
}

// SetField replaces the value of a field, such as /spec/vm/state, if the object has not changed since it was read. A lost
// race is an error, because the decision was made from outdated objects.
func (e *Engine) SetField(ctx context.Context, object client.Object, field string, from, to any) error {
	_, ref, err := e.identify(object)
	if err != nil {
		return microerror.Mask(err)
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": object.GetUID()},
		{"op": "test", "path": "/metadata/resourceVersion", "value": object.GetResourceVersion()},
		{"op": "replace", "path": field, "value": to},
	})
	if err != nil {
		return microerror.Mask(err)
	}
	err = e.client.Patch(ctx, object.DeepCopyObject().(client.Object), client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(ownership.Operator))
	// The API server answers a failed test with 422 (Invalid).
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsConflict(err) {
		return outdatedf("%s has changed since it was read, or refuses %s to be %v", ref, field, to)
	}
	return e.wrote(ctx, "set "+field+" of", ref, err, "from", from, "to", to)
}
