package apply

import (
	"context"
	"maps"
	"slices"

	"github.com/giantswarm/microerror"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// AddFinalizers adds finalizers to an object that lacks them. It fails when the object has changed since it was read, or
// is gone.
func (e *Engine) AddFinalizers(ctx context.Context, object client.Object, names ...string) error {
	wanted := slices.Clone(object.GetFinalizers())
	for _, name := range names {
		if !slices.Contains(wanted, name) {
			wanted = append(wanted, name)
		}
	}
	return e.setFinalizers(ctx, "add finalizers to", object, wanted, e.wrote)
}

// RemoveFinalizer removes a finalizer from an object. It fails when the object has changed since it was read.
func (e *Engine) RemoveFinalizer(ctx context.Context, object client.Object, name string) error {
	return e.RemoveFinalizers(ctx, object, name)
}

// RemoveFinalizers removes finalizers from an object with one request. It fails when the object has changed since it was
// read.
func (e *Engine) RemoveFinalizers(ctx context.Context, object client.Object, names ...string) error {
	left := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool { return slices.Contains(names, f) })
	return e.setFinalizers(ctx, "remove the finalizer of", object, left, e.ofExisting)
}

// setFinalizers replaces the finalizers, and has describe say what became of the request.
func (e *Engine) setFinalizers(
	ctx context.Context, verb string, object client.Object, finalizers []string,
	describe func(ctx context.Context, verb, ref string, err error, more ...any) error,
) error {
	if len(finalizers) == len(object.GetFinalizers()) {
		return nil
	}
	kind, err := apiutil.GVKForObject(object, e.client.Scheme())
	if err != nil {
		return microerror.Mask(err)
	}
	before := object.DeepCopyObject().(client.Object)
	object.SetFinalizers(finalizers)
	err = e.client.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		object.SetFinalizers(before.GetFinalizers())
	}
	return describe(ctx, verb, kind.Kind+" "+client.ObjectKeyFromObject(before).String(), err)
}

// UpdateStatus replaces the status of an object. It fails when the object has changed since it was read, and does
// nothing when it is gone. updated says whether the status was written.
func (e *Engine) UpdateStatus(ctx context.Context, object client.Object) (updated bool, err error) {
	err = e.client.Status().Update(ctx, object)
	return err == nil, microerror.Mask(client.IgnoreNotFound(err))
}

// RemoveAnnotation removes an annotation of an object, once it has had its effect. It fails when the object has changed
// since it was read, and does nothing when it is gone, or has no such annotation.
func (e *Engine) RemoveAnnotation(ctx context.Context, object client.Object, name string) error {
	if _, there := object.GetAnnotations()[name]; !there {
		return nil
	}
	before := object.DeepCopyObject().(client.Object)
	left := maps.Clone(object.GetAnnotations())
	delete(left, name)
	after := object.DeepCopyObject().(client.Object)
	after.SetAnnotations(left)
	err := e.client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return microerror.Mask(client.IgnoreNotFound(err))
}
