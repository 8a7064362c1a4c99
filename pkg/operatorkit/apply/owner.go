package apply

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/giantswarm/microerror"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// IndexOwner is the name of the cache index over annotation owner; the service sets it up for every kind of the engine.
const IndexOwner = "metadata.annotations.owner"

// OwnerOf is the index function of IndexOwner. It also finds objects with an annotation of an earlier operator.
func OwnerOf(object client.Object) []string {
	if owner, named := ownership.Parse(object.GetAnnotations()); named {
		return []string{owner.String()}
	}
	return nil
}

// SetOwner marks an object as the owner's, as the engine does before it applies one.
func SetOwner(object client.Object, owner ownership.Owner) {
	for name, value := range owner.Annotations() {
		annotate(object, name, value)
	}
}

// TrimManagedFields removes from an object in a cache all managed fields but the operator's own entry, of which the time
// remains: the engine needs to know whether a field was ever applied, not which one.
func TrimManagedFields(object metav1.Object) {
	var managers []metav1.ManagedFieldsEntry
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == ownership.Operator && entry.Subresource == "" {
			managers = append(managers, metav1.ManagedFieldsEntry{Manager: entry.Manager, Operation: entry.Operation, Time: entry.Time})
		}
	}
	object.SetManagedFields(managers)
}

// Places are where the objects of an owner lie. An object elsewhere is not the owner's, whatever its annotation,
// because any client that may create it may set the annotation. The zero value contains no place.
type Places struct {
	// Everywhere is for a cluster that has one owner: only its administrators can forge an annotation there.
	Everywhere bool
	// Namespaces are where namespaced objects are searched.
	Namespaces []string
	// Counts decides whether an object with the owner's annotation that lies in one of them, or is cluster-scoped, is
	// the owner's; nil accepts all.
	Counts func(client.Object) bool
	// Former are the UIDs of former custom resources of the same kind, namespace and name whose namespace the owner
	// takes over; the empty UID is for an annotation of an earlier operator, which has none.
	Former []types.UID
}

// CountsBy returns Counts for a function of a package that knows no clients.
func CountsBy(f func(metav1.Object) bool) func(client.Object) bool {
	return func(object client.Object) bool { return f(object) }
}

// property is what belongs to an owner.
type property struct {
	owner  ownership.Owner
	places Places
	kinds  []client.Object
}

// of returns the namespaces to search for a kind; the empty one stands for all namespaces, or for cluster-scoped
// objects.
func (p Places) of(namespaced bool) []string {
	if p.Everywhere || !namespaced {
		return []string{""}
	}
	return p.Namespaces
}

func (p Places) counts(object client.Object) bool {
	return p.Everywhere || p.Counts == nil || p.Counts(object)
}

// Adoption decides whether an object that has no owner becomes the owner's because of its labels. anchor is true for
// kinds on which the ownership of other objects depends, such as a namespace. Otherwise handOver says how a user hands
// the object over.
type Adoption func(live, wanted metav1.Object, anchor bool) (adopted bool, handOver string)

// adoptable rejects objects that belong to another owner, and objects without an owner that are not adopted.
func (e *Engine) adoptable(live client.Object, in *intent, former []types.UID) error {
	annotations, anchor := live.GetAnnotations(), rules[in.key.kind].anchor
	if in.owner.Names(annotations) {
		named, _ := ownership.Parse(annotations)
		if !anchor || named.UID == in.owner.UID || slices.Contains(former, named.UID) {
			return nil
		}
		return problem.Newf(reasonOwnedByOther, "%s names %s of another UID, %q instead of %q, so it is left alone; if it is this one's, set the annotation %s",
			in.ref, in.owner.Kind, named.UID, in.owner.UID, ownership.AnnotationUID)
	}
	if ownership.Has(annotations) {
		return problem.Newf(reasonOwnedByOther, "%s belongs to %q and is left alone; delete it or choose another cluster id", in.ref, annotations[ownership.Annotation])
	}
	wayOut := "delete it"
	if e.Adopts != nil {
		adopted, handOver := e.Adopts(live, in.object, anchor)
		if adopted {
			return nil
		}
		wayOut += ", or " + handOver
	}
	return problem.Newf(reasonNotOwned, "%s exists and is not managed by this operator, so it is left alone; %s", in.ref, wayOut)
}

// remark updates the owner annotations of an object that is otherwise never changed: to the current format, and to the
// UID of a custom resource that was restored from a backup. An object that names no owner is not changed.
func (e *Engine) remark(ctx context.Context, live client.Object, in *intent) error {
	wanted, there := in.owner.Annotations(), live.GetAnnotations()
	same := there[ownership.Annotation] == wanted[ownership.Annotation] && there[ownership.AnnotationUID] == wanted[ownership.AnnotationUID]
	if same || !ownership.Has(there) || in.object.GetResourceVersion() != "" {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": live.GetUID(), "annotations": wanted}})
	if err != nil {
		return microerror.Mask(err)
	}
	err = e.client.Patch(ctx, live.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(ownership.Operator))
	return e.ofExisting(ctx, "mark", in.ref, err)
}
