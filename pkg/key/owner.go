package key

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// KindKVMConfig is the kind of the owner for a KVMConfig, with its API group.
const KindKVMConfig = "KVMConfig.provider.giantswarm.io"

// Owner is the owner of an object: a custom resource and one of the handlers that work for it. It is recorded in
// AnnotationOwner and AnnotationOwnerUID. These annotations prove nothing, because anybody may write them: see
// apply.Places.
type Owner struct {
	// Kind and API group, namespace, name and UID of the custom resource. The UID is empty if it is unknown: for a
	// KVMConfig that does not exist yet, and in annotations of earlier operators.
	Kind, Namespace, Name string
	UID                   types.UID
	// Handler is the name of the handler that creates the object.
	Handler string
}

// OwnerKVMConfig returns a KVMConfig as the owner of the objects of one handler.
func OwnerKVMConfig(config *v1alpha1.KVMConfig, handler string) Owner {
	return Owner{Kind: KindKVMConfig, Namespace: config.Namespace, Name: config.Name, UID: config.UID, Handler: handler}
}

// String returns the value of AnnotationOwner.
func (o Owner) String() string {
	return o.Kind + "/" + o.Namespace + "/" + o.Name + "/" + o.Handler
}

// Annotations returns the annotations by which an object names its owner.
func (o Owner) Annotations() map[string]string {
	annotations := map[string]string{AnnotationOwner: o.String()}
	if o.UID != "" {
		annotations[AnnotationOwnerUID] = string(o.UID)
	}
	return annotations
}

// ParseOwner parses the owner that annotations name; named is false if they name none, or none that can be parsed.
// Earlier operators wrote "<namespace>/<name>/<handler>", only for KVMConfigs and without a UID.
func ParseOwner(annotations map[string]string) (owner Owner, named bool) {
	parts := strings.Split(annotations[AnnotationOwner], "/")
	switch len(parts) {
	case 3:
		return Owner{Kind: KindKVMConfig, Namespace: parts[0], Name: parts[1], Handler: parts[2]}, true
	case 4:
		uid := types.UID(annotations[AnnotationOwnerUID])
		return Owner{Kind: parts[0], Namespace: parts[1], Name: parts[2], Handler: parts[3], UID: uid}, true
	default:
		return Owner{}, false
	}
}

// HasOwner reports whether annotations claim that an object has an owner, whether it can be parsed or not.
func HasOwner(annotations map[string]string) bool {
	_, has := annotations[AnnotationOwner]
	return has
}

// Names reports whether annotations name the owner, regardless of the UID: the same custom resource, or a former one of
// the same kind, namespace and name.
func (o Owner) Names(annotations map[string]string) bool {
	named, ok := ParseOwner(annotations)
	named.UID = o.UID
	return ok && named == o
}

// NamesExactly reports whether annotations name the owner and its UID.
func (o Owner) NamesExactly(annotations map[string]string) bool {
	named, ok := ParseOwner(annotations)
	return ok && named == o
}

// OfCustomResource reports whether two owners are the same custom resource by kind, namespace and name, regardless of
// their handlers and UIDs.
func (o Owner) OfCustomResource(other Owner) bool {
	return o.Kind == other.Kind && o.Namespace == other.Namespace && o.Name == other.Name
}
