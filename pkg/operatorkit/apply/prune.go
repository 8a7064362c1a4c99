package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/giantswarm/microerror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// deleteOwned deletes what is owned, except the wanted, and returns what the cache still shows of it.
func (e *Engine) deleteOwned(ctx context.Context, verb string, owned property, wanted []client.Object, options ...client.ListOption) ([]string, error) {
	keep, err := e.keysOf(wanted)
	if err != nil {
		return nil, err
	}
	var remaining []string
	for _, kind := range owned.kinds {
		objects, err := e.listOwned(ctx, kind, owned, options...)
		if err != nil {
			return nil, err
		}
		refs, err := e.deleteAll(ctx, verb, objects, keep, owned.owner)
		if err != nil {
			return nil, err
		}
		remaining = append(remaining, refs...)
	}
	return remaining, nil
}

func (e *Engine) deleteAll(ctx context.Context, verb string, objects []client.Object, keep map[objectKey]bool, owner ownership.Owner) ([]string, error) {
	var refs []string
	for _, object := range objects {
		k, ref, err := e.identify(object)
		if err != nil {
			return nil, microerror.Mask(err)
		}
		if keep[k] {
			continue
		}
		refs = append(refs, ref+heldBy(object))
		if err := e.deleteOne(ctx, verb, object, owner); err != nil {
			return nil, err
		}
	}
	return refs, nil
}

// maxFinalizers is how many finalizers a message names.
const maxFinalizers = 3

// heldBy returns the finalizers that an object in deletion waits for, such as " (finalizers example.org/backup)", other
// than those of the garbage collector. Any user who may write the object may have set them.
func heldBy(object client.Object) string {
	names := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(name string) bool {
		return name == metav1.FinalizerDeleteDependents || name == metav1.FinalizerOrphanDependents
	})
	if object.GetDeletionTimestamp() == nil || len(names) == 0 {
		return ""
	}
	more := ""
	if len(names) > maxFinalizers {
		more = fmt.Sprintf(" and %d more", len(names)-maxFinalizers)
	}
	return " (finalizers " + strings.Join(names[:min(len(names), maxFinalizers)], ", ") + more + ")"
}

func (e *Engine) keysOf(objects []client.Object) (map[objectKey]bool, error) {
	keys := map[objectKey]bool{}
	for _, object := range objects {
		k, _, err := e.identify(object)
		if err != nil {
			return nil, microerror.Mask(err)
		}
		keys[k] = true
	}
	return keys, nil
}

func (e *Engine) deleteOne(ctx context.Context, verb string, object client.Object, owner ownership.Owner) error {
	if object.GetDeletionTimestamp() != nil {
		return nil
	}
	k, ref, err := e.identify(object)
	if err != nil {
		return microerror.Mask(err)
	}
	uid := object.GetUID()
	exactly, policy := client.Preconditions{UID: &uid}, propagationOf(verb, object)
	if policy == metav1.DeletePropagationOrphan {
		// What is left behind depends on what the object says now.
		version := object.GetResourceVersion()
		exactly.ResourceVersion = &version
	}
	err = e.client.Delete(ctx, object, exactly, client.PropagationPolicy(policy))
	if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		err = e.wrote(ctx, verb, ref, err, by(owner)...)
		if err != nil {
			return err
		}
	}
	e.forget(k)
	return nil
}

// listOwned lists the objects of a kind that belong to the owner, through the cache's index and for each place; it does
// not look at objects elsewhere.
func (e *Engine) listOwned(ctx context.Context, kind client.Object, owned property, options ...client.ListOption) ([]client.Object, error) {
	gvk, err := apiutil.GVKForObject(kind, e.client.Scheme())
	if err != nil {
		return nil, microerror.Mask(err)
	}
	namespaced, err := e.client.IsObjectNamespaced(kind)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	var objects []client.Object
	for _, namespace := range owned.places.of(namespaced) {
		empty, err := e.client.Scheme().New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err != nil {
			return nil, microerror.Mask(err)
		}
		list := empty.(client.ObjectList)
		by := append([]client.ListOption{client.InNamespace(namespace), client.MatchingFields{IndexOwner: owned.owner.String()}}, options...)
		if err := e.client.List(ctx, list, by...); err != nil {
			return nil, requestError("list", gvk.Kind, err)
		}
		err = meta.EachListItem(list, func(item runtime.Object) error {
			if object := item.(client.Object); owned.places.counts(object) {
				objects = append(objects, object)
			}
			return nil
		})
		if err != nil {
			return nil, microerror.Mask(err)
		}
	}
	return objects, nil
}
