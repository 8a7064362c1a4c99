package key

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// KindKVMConfig is the kind of owner that a KVMConfig is, with its API group.
const KindKVMConfig = "KVMConfig.provider.giantswarm.io"

// Owner is whom an object belongs to: a custom resource and one of the handlers that work for it. It is written down in AnnotationOwner and
// AnnotationOwnerUID. That an object says so proves nothing, because anybody may write it: see apply.Places.
type Owner struct {
	// Kind and API group, namespace, name and UID of the custom resource. The UID is empty where it is not known: for a KVMConfig that does not
	// exist yet, and in marks of earlier operators.
	Kind, Namespace, Name string
	UID                   types.UID
	// Handler is the name of the handler that makes the object.
	Handler string
}

// OwnerKVMConfig is a KVMConfig as the owner of the objects of one handler.
func OwnerKVMConfig(config *v1alpha1.KVMConfig, handler string) Owner {
	return Owner{Kind: KindKVMConfig, Namespace: config.Namespace, Name: config.Name, UID: config.UID, Handler: handler}
}

// String is the value of AnnotationOwner.
func (o Owner) String() string {
	return o.Kind + "/" + o.Namespace + "/" + o.Name + "/" + o.Handler
}

// Annotations are those by which an object says whom it belongs to.
func (o Owner) Annotations() map[string]string {
	annotations := map[string]string{AnnotationOwner: o.String()}
	if o.UID != "" {
		annotations[AnnotationOwnerUID] = string(o.UID)
	}
	return annotations
}

// ParseOwner reads the owner that annotations name; named is false when they name none, or none that can be read. Earlier operators
// wrote "<namespace>/<name>/<handler>", for KVMConfigs only and without a UID.
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

// HasOwner says whether annotations claim that an object belongs to somebody, readable or not.
func HasOwner(annotations map[string]string) bool {
	_, has := annotations[AnnotationOwner]
	return has
}

// Names says whether annotations name the owner, whatever UID they give: the same custom resource, or a former one of the same kind,
// namespace and name.
func (o Owner) Names(annotations map[string]string) bool {
	named, ok := ParseOwner(annotations)
	named.UID = o.UID
	return ok && named == o
}

// NamesExactly says whether annotations name the owner and its UID.
func (o Owner) NamesExactly(annotations map[string]string) bool {
	named, ok := ParseOwner(annotations)
	return ok && named == o
}

// OfCustomResource says whether two owners are the same custom resource by kind, namespace and name, whatever their handlers and UIDs.
func (o Owner) OfCustomResource(other Owner) bool {
	return o.Kind == other.Kind && o.Namespace == other.Namespace && o.Name == other.Name
}
