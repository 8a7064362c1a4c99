package apply

import (
	"context"
	"errors"
	"maps"

	"github.com/giantswarm/microerror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// update applies the intent to the existing object.
func (e *Engine) update(ctx context.Context, live client.Object, in *intent) error {
	rule := rules[in.key.kind]
	if e.recreates(live, in) {
		return e.recreate(ctx, live, in)
	}
	if rule.keep != nil {
		if err := errors.Join(rule.keep(live, in.object), in.render()); err != nil {
			return err
		}
	}
	if rule.drop != nil {
		if patch := rule.drop(live, in.object); patch != nil {
			err := e.client.Patch(ctx, live, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(ownership.Operator))
			if err := e.wrote(ctx, "patch", in.ref, err, by(in.owner)...); err != nil {
				return err
			}
		}
	}
	if !rule.wholeFields {
		moved, err := e.moveFields(ctx, live, in)
		if err != nil {
			return err
		}
		if err := in.merge(moved); err != nil {
			return microerror.Mask(err)
		}
		live = moved
	}
	return e.apply(ctx, live, in)
}

// recreates returns whether the object has to be recreated to hold the intent. What was kept of an object before, because
// it could not be recreated then, is no reason not to; that it was created from the same intent is one.
func (e *Engine) recreates(live client.Object, in *intent) bool {
	recreate := rules[in.key.kind].recreate
	return recreate != nil && recreate(live, in.object) && !e.madeFrom(live, in)
}

// replace replaces the resource version that the intent names; an intent that names none changes nothing. Labels and
// annotations of others are kept.
func (e *Engine) replace(ctx context.Context, live client.Object, in *intent) error {
	version := in.object.GetResourceVersion()
	if version == "" {
		return nil
	}
	if live.GetResourceVersion() != version {
		return outdatedf("%s has changed since it was read", in.ref)
	}
	replacement := in.object.DeepCopyObject().(client.Object)
	replacement.SetUID(live.GetUID())
	replacement.SetGeneration(live.GetGeneration())
	replacement.SetCreationTimestamp(live.GetCreationTimestamp())
	replacement.SetManagedFields(live.GetManagedFields())
	replacement.SetLabels(merged(live.GetLabels(), replacement.GetLabels()))
	replacement.SetAnnotations(merged(live.GetAnnotations(), replacement.GetAnnotations()))
	replacement.SetFinalizers(live.GetFinalizers())
	replacement.SetOwnerReferences(live.GetOwnerReferences())
	difference := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	err := e.client.Patch(ctx, replacement, difference, client.FieldOwner(ownership.Operator))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return outdatedf("%s has changed since it was read", in.ref)
	}
	return e.wrote(ctx, "replace", in.ref, err, by(in.owner)...)
}

// merged returns the existing values, overwritten by the wanted ones.
func merged(there, wanted map[string]string) map[string]string {
	all := maps.Clone(there)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, wanted)
	return all
}

func (e *Engine) recreate(ctx context.Context, live client.Object, in *intent) error {
	if err := e.deleteOne(ctx, "delete", live, in.owner); err != nil {
		return err
	}
	old, err := e.create(ctx, in)
	if err == nil && old != nil {
		return outdatedf("%s has not gone yet", in.ref)
	}
	return err
}

func (e *Engine) apply(ctx context.Context, live client.Object, in *intent) error {
	request, err := in.request(live)
	if err != nil {
		return microerror.Mask(err)
	}
	// A raw patch is used instead of client.Apply, because client.Apply takes unstructured objects, for which the
	// client would watch everything twice.
	applied := in.object.DeepCopyObject().(client.Object)
	err = e.client.Patch(ctx, applied, client.RawPatch(types.ApplyPatchType, request), client.FieldOwner(ownership.Operator), client.ForceOwnership)
	if in.exact() && apierrors.IsConflict(err) {
		return outdatedf("%s has changed since it was read", in.ref)
	}
	if err := e.wrote(ctx, "apply", in.ref, err, by(in.owner)...); err != nil {
		return err
	}
	e.remember(applied, in)
	if in.applied != nil {
		in.applied(applied)
	}
	return nil
}

// moveFields turns the fields that this operator owns from posting the object into applied ones. Without it a field
// that is dropped from the intent would remain, owned by the post. It takes two requests, once per object. It returns the
// object as it is after that.
func (e *Engine) moveFields(ctx context.Context, live client.Object, in *intent) (client.Object, error) {
	if !posted(live) {
		return live, nil
	}
	full, err := e.read(ctx, e.live, in.object)
	if err != nil {
		return nil, requestError("read", in.ref, err)
	}
	if full == nil || full.GetUID() != live.GetUID() {
		return live, nil // the apply fails, because it names the UID
	}
	if in.exact() && full.GetResourceVersion() != live.GetResourceVersion() {
		return nil, outdatedf("%s has changed since it was read", in.ref)
	}
	if !posted(full) {
		return full, nil
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(full, sets.New(ownership.Operator), ownership.Operator)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	err = e.client.Patch(ctx, full, client.RawPatch(types.JSONPatchType, patch))
	if in.exact() && apierrors.IsConflict(err) {
		return nil, outdatedf("%s has changed since it was read", in.ref)
	}
	return full, e.wrote(ctx, "move fields of", in.ref, err, by(in.owner)...)
}

func posted(live client.Object) bool {
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == ownership.Operator && entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == "" {
			return true
		}
	}
	return false
}
