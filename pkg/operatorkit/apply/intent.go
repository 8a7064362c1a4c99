package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// intent is a desired object ready to be sent: typed, as the content of an apply request, and as a hash.
type intent struct {
	// created is called with the object once it is created; may be nil.
	created func(client.Object)
	// applied is called with the object once the existing one was updated; may be nil.
	applied func(client.Object)

	// seen is the version of the object that the cache had when the intent was compared with it; empty for none.
	seen string

	key    objectKey
	ref    string
	object client.Object
	// unmerged is the object before anything of a live one was merged; nil if nothing was.
	unmerged client.Object
	owner    ownership.Owner
	content  map[string]any
	hash     string
}

func (e *Engine) identify(object client.Object) (objectKey, string, error) {
	gvk, err := apiutil.GVKForObject(object, e.client.Scheme())
	if err != nil {
		return objectKey{}, "", err
	}
	name := client.ObjectKeyFromObject(object)
	ref := gvk.Kind + " " + name.Name
	if name.Namespace != "" {
		ref = gvk.Kind + " " + name.String()
	}
	return objectKey{kind: gvk.GroupKind().String(), name: name}, ref, nil
}

func (e *Engine) newIntent(desired client.Object, owner ownership.Owner) (*intent, error) {
	gvk, err := apiutil.GVKForObject(desired, e.client.Scheme())
	if err != nil {
		return nil, err
	}
	in := &intent{object: desired.DeepCopyObject().(client.Object), owner: owner}
	if in.key, in.ref, err = e.identify(desired); err != nil {
		return nil, err
	}
	in.object.GetObjectKind().SetGroupVersionKind(gvk)
	SetOwner(in.object, owner)
	if prepare := rules[in.key.kind].prepare; prepare != nil {
		prepare(in.object)
	}
	if err := in.render(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(in.content)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	in.hash = hex.EncodeToString(sum[:12])
	annotate(in.object, ownership.AnnotationApplied, in.hash)
	// SetOwner annotated the object, so the content has annotations. Rendering it again would take as long as the rest.
	return in, unstructured.SetNestedField(in.content, in.hash, "metadata", "annotations", ownership.AnnotationApplied)
}

// merge makes the intent include what others own of live, if there is a rule for that. What an earlier call merged is
// replaced. The hash stays that of the intent itself.
func (in *intent) merge(live client.Object) error {
	merge := rules[in.key.kind].merge
	if merge == nil {
		return nil
	}
	if in.unmerged == nil {
		in.unmerged = in.object
	}
	in.object = in.unmerged.DeepCopyObject().(client.Object)
	merge(live, in.object)
	return in.render()
}

// render fills content from object. It leaves out null values and what the API server owns, because they are not part
// of the intent.
func (in *intent) render() error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(in.object)
	if err != nil {
		return err
	}
	delete(content, "status")
	in.content = withoutNulls(content)
	return nil
}

func withoutNulls(m map[string]any) map[string]any {
	for name, value := range m {
		switch v := value.(type) {
		case nil:
			delete(m, name)
		case map[string]any:
			withoutNulls(v)
		case []any:
			for _, item := range v {
				if object, ok := item.(map[string]any); ok {
					withoutNulls(object)
				}
			}
		}
	}
	return m
}

func annotate(object metav1.Object, name, value string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = value
	object.SetAnnotations(annotations)
}

// heldBy reports whether every field of the intent has its value in live; fields that are not in the intent are
// ignored. A field that was dropped from the intent changes the hash instead.
func (in *intent) heldBy(live client.Object) bool {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return false
	}
	// Cached objects do not have apiVersion and kind.
	content["apiVersion"], content["kind"] = in.content["apiVersion"], in.content["kind"]
	return holds(content, in.content)
}

// holds compares maps by the wanted keys only, and lists by position and as a whole.
func holds(live, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		return ok && holdsMap(l, w)
	case []any:
		l, ok := live.([]any)
		return ok && slices.EqualFunc(l, w, holds)
	default:
		return live == want
	}
}

// holdsMap treats an empty value in want as equal to a missing one in live.
func holdsMap(live, want map[string]any) bool {
	for name, value := range want {
		if !holds(live[name], value) && (live[name] != nil || !empty(value)) {
			return false
		}
	}
	return true
}

func empty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, item := range v {
			if !empty(item) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	default:
		return value == nil || value == "" || value == false || value == int64(0)
	}
}

// exact returns whether an apply fails if the object has changed since it was read.
func (in *intent) exact() bool { return in.unmerged != nil || rules[in.key.kind].anchor }

// request returns the content of an apply request that fails, instead of recreating the object, if the object is gone,
// and if it has changed and the intent is exact.
func (in *intent) request(live client.Object) ([]byte, error) {
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(in.content)}
	u.SetUID(live.GetUID())
	if in.exact() {
		u.SetResourceVersion(live.GetResourceVersion())
	}
	return u.MarshalJSON()
}
