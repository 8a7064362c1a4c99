// Package ownership records which custom resource, and which of its handlers, an object belongs to.
package ownership

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Operator is the name of this program, and of the field manager of what it writes.
const Operator = "kvm-operator"

const (
	// Annotation says which custom resource and which handler an object belongs to:
	// "<kind>.<group>/<namespace>/<name>/<handler>". The engine does not touch objects with another value. See Owner.
	Annotation = "kvm-operator.giantswarm.io/owner"
	// AnnotationUID is the UID of that custom resource.
	AnnotationUID = "kvm-operator.giantswarm.io/owner-uid"
	// AnnotationApplied is the hash of the intent that was applied last. With it a restarted operator knows that
	// nothing has to be done, without a request to the API server.
	AnnotationApplied = "kvm-operator.giantswarm.io/applied"
)

// UnstoredUID stands for the UID of a custom resource that is not stored, where its objects are shown without a cluster.
const UnstoredUID types.UID = "00000000-0000-0000-0000-000000000000"

// kindOfEarlier is the kind of all owners that earlier operators wrote, which named no kind.
const kindOfEarlier = "KVMConfig.provider.giantswarm.io"

// Owner is the owner of an object: a custom resource and one of the handlers that work for it. It is recorded in
// Annotation and AnnotationUID. These annotations prove nothing, because any user may write them: see
// apply.Places.
type Owner struct {
	// Kind and API group, namespace, name and UID of the custom resource. The UID is empty if it is unknown: for a
	// KVMConfig that does not exist yet, and in annotations of earlier operators.
	Kind, Namespace, Name string
	UID                   types.UID
	// Handler is the name of the handler that creates the object.
	Handler string
}

// String returns the value of Annotation.
func (o Owner) String() string {
	return o.Kind + "/" + o.Namespace + "/" + o.Name + "/" + o.Handler
}

// Annotations returns the annotations by which an object names its owner.
func (o Owner) Annotations() map[string]string {
	annotations := map[string]string{Annotation: o.String()}
	if o.UID != "" {
		annotations[AnnotationUID] = string(o.UID)
	}
	return annotations
}

// Parse parses the owner that annotations name; named is false if they name none, or none that can be parsed.
// Earlier operators wrote "<namespace>/<name>/<handler>", only for KVMConfigs and without a UID.
func Parse(annotations map[string]string) (owner Owner, named bool) {
	parts := strings.Split(annotations[Annotation], "/")
	switch len(parts) {
	case 3:
		return Owner{Kind: kindOfEarlier, Namespace: parts[0], Name: parts[1], Handler: parts[2]}, true
	case 4:
		uid := types.UID(annotations[AnnotationUID])
		return Owner{Kind: parts[0], Namespace: parts[1], Name: parts[2], Handler: parts[3], UID: uid}, true
	default:
		return Owner{}, false
	}
}

// Has reports whether annotations claim that an object has an owner, whether it can be parsed or not.
func Has(annotations map[string]string) bool {
	_, has := annotations[Annotation]
	return has
}

// Names reports whether annotations name the owner, regardless of the UID: the same custom resource, or a former one of
// the same kind, namespace and name.
func (o Owner) Names(annotations map[string]string) bool {
	named, ok := Parse(annotations)
	named.UID = o.UID
	return ok && named == o
}

// NamesExactly reports whether annotations name the owner and its UID.
func (o Owner) NamesExactly(annotations map[string]string) bool {
	named, ok := Parse(annotations)
	return ok && named == o
}

// OfCustomResource reports whether two owners are the same custom resource by kind, namespace and name, regardless of
// their handlers and UIDs.
func (o Owner) OfCustomResource(other Owner) bool {
	return o.Kind == other.Kind && o.Namespace == other.Namespace && o.Name == other.Name
}
