package apply

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/giantswarm/microerror"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/problem"
)

// IndexOwner is the name of the cache index over annotation owner; the service sets it up for every kind of the engine.
const IndexOwner = "metadata.annotations.owner"

// OwnerOf is the index function of IndexOwner. Objects with a mark of an earlier operator are found like those with one of today.
func OwnerOf(object client.Object) []string {
	if owner, named := key.ParseOwner(object.GetAnnotations()); named {
		return []string{owner.String()}
	}
	return nil
}

// SetOwner marks an object as the owner's, as the engine does before it applies one.
func SetOwner(object client.Object, owner key.Owner) {
	for name, value := range owner.Annotations() {
		annotate(object, name, value)
	}
}

// Places are where the objects of an owner lie. An object elsewhere is not the owner's, whatever it says: anybody who may create it may
// write the annotation. The zero value is no place at all.
type Places struct {
	// Everywhere is for a cluster that has one owner: nobody but its administrators can forge anything there.
	Everywhere bool
	// Namespaces are those in which objects are looked for, if their kind has a namespace.
	Namespaces []string
	// Counts judges an object that says that it is the owner's and lies in one of them, or has no namespace; nil takes all.
	Counts func(client.Object) bool
	// Former are the UIDs of former custom resources of the same kind, namespace and name whose namespace the owner takes over; the empty one
	// is for a mark of an earlier operator, which has none.
	Former []types.UID
}

// property is what belongs to an owner.
type property struct {
	owner  key.Owner
	places Places
	kinds  []client.Object
}

// of are the namespaces to look into for a kind; the empty one stands for all, or for none.
func (p Places) of(namespaced bool) []string {
	if p.Everywhere || !namespaced {
		return []string{""}
	}
	return p.Namespaces
}

func (p Places) counts(object client.Object) bool {
	return p.Everywhere || p.Counts == nil || p.Counts(object)
}

// adoptable refuses objects that belong to somebody else. An object without an owner is adopted when it carries the
// labels of the original for the same cluster.
func adoptable(live client.Object, in *intent, former []types.UID) error {
	annotations, anchor := live.GetAnnotations(), rules[in.key.kind].anchor
	if in.owner.Names(annotations) {
		named, _ := key.ParseOwner(annotations)
		if !anchor || named.UID == in.owner.UID || slices.Contains(former, named.UID) {
			return nil
		}
		return problem.Newf(reasonOwnedByOther, "%s names %s of another UID, %q instead of %q, so it is left alone; if it is this one's, set the annotation %s",
			in.ref, in.owner.Kind, named.UID, in.owner.UID, key.AnnotationOwnerUID)
	}
	if key.HasOwner(annotations) {
		return problem.Newf(reasonOwnedByOther, "%s belongs to %q and is left alone; delete it or choose another cluster id", in.ref, annotations[key.AnnotationOwner])
	}
	cluster := in.object.GetLabels()[key.LabelGSCluster]
	if labels := live.GetLabels(); cluster != "" && (labels[key.LabelGSCluster] == cluster || !anchor && key.OfCluster(labels, cluster)) {
		return nil
	}
	return problem.Newf(reasonNotOwned, "%s exists and is not managed by this operator, so it is left alone; delete it, or hand it over with the label %s=%s",
		in.ref, key.LabelGSCluster, cluster)
}

// remark has an object that is never changed otherwise name its owner as it is now: in today's form, and with the UID of a custom resource
// that was restored from a backup. One that names no owner is left as it is.
func (e *Engine) remark(ctx context.Context, live client.Object, in *intent) error {
	wanted, there := in.owner.Annotations(), live.GetAnnotations()
	same := there[key.AnnotationOwner] == wanted[key.AnnotationOwner] && there[key.AnnotationOwnerUID] == wanted[key.AnnotationOwnerUID]
	if same || !key.HasOwner(there) || in.object.GetResourceVersion() != "" {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": live.GetUID(), "annotations": wanted}})
	if err != nil {
		return microerror.Mask(err)
	}
	err = e.client.Patch(ctx, live.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(key.Operator))
	return ofExisting(ctx, "mark", in.ref, err)
}
