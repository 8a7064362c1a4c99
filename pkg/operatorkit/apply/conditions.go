package apply

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/giantswarm/microerror"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// SetConditionsAs does the same for another field owner. Conditions that this owner set before, and that are not among
// these, are removed.
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
	applied := ofStatus(kind, object, map[string]any{"conditions": list})
	request, err := applied.MarshalJSON()
	if err != nil {
		return microerror.Mask(err)
	}
	// Waiting for the cache would need a second cache of the kind, for objects without a Go type.
	options := client.PatchOptions{FieldManager: owner, Force: ptr.To(true), DisableReadYourWritesConsistency: true}
	err = e.client.Status().Patch(ctx, applied, client.RawPatch(types.ApplyPatchType, request), &client.SubResourcePatchOptions{PatchOptions: options})
	return e.ofExisting(ctx, "set the conditions of", kind.Kind+" "+client.ObjectKeyFromObject(object).String(), err)
}

// DropCondition removes the condition of a type from those of an object, regardless of its field owners. It fails when the
// object has changed since it was read, and does nothing when it is gone.
func (e *Engine) DropCondition(ctx context.Context, owner string, object client.Object, conditions []metav1.Condition, name string) error {
	kind, err := apiutil.GVKForObject(object, e.client.Scheme())
	if err != nil {
		return microerror.Mask(err)
	}
	kept := slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool { return c.Type == name })
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion()},
		"status":   map[string]any{"conditions": kept},
	})
	if err != nil {
		return microerror.Mask(err)
	}
	// Waiting for the cache would need a second cache of the kind, for objects without a Go type.
	options := client.PatchOptions{FieldManager: owner, DisableReadYourWritesConsistency: true}
	err = e.client.Status().Patch(ctx, ofStatus(kind, object, nil), client.RawPatch(types.MergePatchType, patch), &client.SubResourcePatchOptions{PatchOptions: options})
	return e.ofExisting(ctx, "remove condition "+name+" of", kind.Kind+" "+client.ObjectKeyFromObject(object).String(), err)
}

// ApplyStatus applies the status of an object as a field owner, except for the conditions of the types of others, which
// other field owners apply. It fails when the object has changed since it was read. It returns the object as it is
// stored, and nil when it is gone. The stored status differs from that of object if another owner wrote to a field
// that object's status lacks. The API server refuses the request as invalid if another owner has only a part of an item
// that object's status no longer has. See CorrectStatus for both.
func (e *Engine) ApplyStatus(ctx context.Context, owner string, object client.Object, others []string) (stored client.Object, err error) {
	kind, err := apiutil.GVKForObject(object, e.client.Scheme())
	if err != nil {
		return nil, microerror.Mask(err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	status, _, err := unstructured.NestedMap(fields, "status")
	if err != nil {
		return nil, microerror.Mask(err)
	}
	if status == nil {
		status = map[string]any{}
	}
	conditions, _, _ := unstructured.NestedSlice(status, "conditions")
	status["conditions"] = slices.DeleteFunc(conditions, func(c any) bool {
		fields, _ := c.(map[string]any)
		name, _ := fields["type"].(string)
		return slices.Contains(others, name)
	})
	applied := ofStatus(kind, object, status)
	applied.SetResourceVersion(object.GetResourceVersion())
	request, err := applied.MarshalJSON()
	if err != nil {
		return nil, microerror.Mask(err)
	}
	// The answer is decoded into an empty object, because decoding keeps fields that the answer lacks.
	empty, err := e.client.Scheme().New(kind)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	stored = empty.(client.Object)
	stored.SetNamespace(object.GetNamespace())
	stored.SetName(object.GetName())
	err = e.client.Status().Patch(ctx, stored, client.RawPatch(types.ApplyPatchType, request), client.FieldOwner(owner), client.ForceOwnership)
	if err != nil {
		return nil, microerror.Mask(client.IgnoreNotFound(err))
	}
	return stored, nil
}

// CorrectStatus changes the status of a stored object to that of wanted, regardless of the owners of its fields. It fails
// when the object has changed since it was stored, and does nothing when it is gone. updated says whether it was written.
func (e *Engine) CorrectStatus(ctx context.Context, owner string, stored, wanted client.Object) (updated bool, err error) {
	err = e.client.Status().Patch(ctx, wanted, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}), client.FieldOwner(owner))
	return err == nil, microerror.Mask(client.IgnoreNotFound(err))
}

// ofStatus returns what to apply to the status of an object. An object of the same name with another UID is refused.
func ofStatus(kind schema.GroupVersionKind, object client.Object, status map[string]any) *unstructured.Unstructured {
	applied := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	applied.SetGroupVersionKind(kind)
	applied.SetNamespace(object.GetNamespace())
	applied.SetName(object.GetName())
	applied.SetUID(object.GetUID())
	return applied
}
