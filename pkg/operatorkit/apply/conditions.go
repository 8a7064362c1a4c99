package apply

import (
	"context"

	"github.com/giantswarm/microerror"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// SetConditions sets conditions in the status of an object, and changes nothing else. It does not need to decode the
// rest of the object. The list of conditions has to be a map by type in the schema of the kind.
func (e *Engine) SetConditions(ctx context.Context, object client.Object, conditions ...metav1.Condition) error {
	return e.SetConditionsAs(ctx, ownership.Operator, object, conditions...)
}

// SetConditionsAs does the same for another field owner. Conditions that this owner set before, and that are not among these, are removed.
func (e *Engine) SetConditionsAs(ctx context.Context, owner string, object client.Object, conditions ...metav1.Condition) error {
	kind, err := apiutil.GVKForObject(object, e.client.Scheme())
	if err != nil {
		return microerror.Mask(err)
	}
	list := []any{}
	for i := range conditions {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&conditions[i])
		if err != nil {
			return microerror.Mask(err)
		}
		list = append(list, fields)
	}
	applied := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": list}}}
	applied.SetGroupVersionKind(kind)
	applied.SetNamespace(object.GetNamespace())
	applied.SetName(object.GetName())
	applied.SetUID(object.GetUID())
	// Waiting for the cache would need a second cache of the kind, for objects without a Go type.
	options := client.PatchOptions{FieldManager: owner, Force: ptr.To(true), DisableReadYourWritesConsistency: true}
	request, err := applied.MarshalJSON()
	if err != nil {
		return microerror.Mask(err)
	}
	err = e.client.Status().Patch(ctx, applied, client.RawPatch(types.ApplyPatchType, request), &client.SubResourcePatchOptions{PatchOptions: options})
	return e.ofExisting(ctx, "set the conditions of", kind.Kind+" "+client.ObjectKeyFromObject(object).String(), err)
}
