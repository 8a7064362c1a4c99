// Package undecodable prevents one object that Go cannot decode from stopping the cache of its kind.
//
// An API server validates an object against the schema of its kind. A schema may accept what the Go type rejects: a
// number that does not fit an int32, or a malformed quantity. A list with one such object cannot be decoded, so a cache
// that decodes lists as a whole stops for all objects. The informers of this package decode object by object. If an
// object cannot be decoded, they keep its metadata, and the fields in keep that can be decoded, with a mark that says
// why: see Why.
package undecodable

import (
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mark is the annotation, only in the cache, of an object that could not be decoded. No user can set it, because every
// API server rejects a key with a space.
const mark = "not decodable because"

// Why names the fields of an object from the cache that could not be decoded, and says what is wrong with them. It is
// empty for an object that was decoded.
//
// If an object was not decoded, only its metadata can be trusted: its spec looks empty.
func Why(object client.Object) string { return object.GetAnnotations()[mark] }

// Mark makes an object look like one that could not be decoded, for tests of code that reads the cache.
func Mark(object client.Object, why string) {
	annotations := map[string]string{mark: why}
	for key, value := range object.GetAnnotations() {
		annotations[key] = value
	}
	object.SetAnnotations(annotations)
}

// keep are the fields besides the metadata that are kept of an object that cannot be decoded, each if it can be decoded
// itself.
var keep = [][]string{
	// The operator finds the cluster of a KVMConfig by its id.
	{"spec", "cluster", "id"},
	// From the conditions the operator knows what it has already reported for the object.
	{"status", "conditions"},
}

// negotiator returns decoders that tolerate objects that cannot be decoded.
type negotiator struct{ runtime.NegotiatedSerializer }

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (n negotiator) DecoderToVersion(serializer runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return decoder{n.NegotiatedSerializer.DecoderToVersion(serializer, version)}
}

// decoder decodes JSON as the upstream does, and item by item if that fails.
type decoder struct{ upstream runtime.Decoder }

// Decode implements runtime.Decoder.
func (d decoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, kind, err := d.upstream.Decode(data, defaults, into)
	if err == nil {
		return object, kind, nil
	}
	if into != nil && meta.IsListType(into) {
		return d.list(data, defaults, into, err)
	}
	return d.rest(data, defaults, into, err)
}

// list decodes each item by itself.
func (d decoder) list(data []byte, defaults *schema.GroupVersionKind, into runtime.Object, because error) (runtime.Object, *schema.GroupVersionKind, error) {
	var list struct {
		metav1.TypeMeta
		Metadata json.RawMessage   `json:"metadata,omitempty"`
		Items    []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(data, &list) != nil {
		return nil, nil, because // no JSON at all
	}
	items := list.Items
	list.Items = nil
	frame, err := json.Marshal(list)
	if err != nil {
		return nil, nil, because
	}
	reflect.ValueOf(into).Elem().SetZero()
	result, kind, err := d.upstream.Decode(frame, defaults, into)
	if err != nil {
		return nil, nil, because
	}
	item := schema.GroupVersionKind{}
	if kind != nil {
		item = kind.GroupVersion().WithKind(singular(kind.Kind))
	}
	objects := make([]runtime.Object, 0, len(items))
	for _, raw := range items {
		object, _, err := d.Decode(raw, &item, nil)
		if err != nil {
			return nil, nil, err
		}
		objects = append(objects, object)
	}
	return result, kind, meta.SetList(result, objects)
}

func singular(list string) string {
	const suffix = "List"
	if len(list) > len(suffix) && list[len(list)-len(suffix):] == suffix {
		return list[:len(list)-len(suffix)]
	}
	return list
}

// rest decodes what can be decoded of one object.
func (d decoder) rest(data []byte, defaults *schema.GroupVersionKind, into runtime.Object, because error) (runtime.Object, *schema.GroupVersionKind, error) {
	whole, err := generic(data)
	if err != nil || whole["metadata"] == nil {
		return nil, nil, because // no object
	}
	try := func(part map[string]any) error {
		_, _, err := d.decode(part, defaults, nil)
		return err
	}
	head := func() map[string]any {
		return map[string]any{"apiVersion": whole["apiVersion"], "kind": whole["kind"], "metadata": whole["metadata"]}
	}
	if try(head()) != nil {
		return nil, nil, because // the metadata are the API server's own; without them there is no object
	}
	kept := head()
	for _, path := range keep {
		if value, ok := at(whole, path); ok && try(put(head(), path, value)) == nil {
			kept = put(kept, path, value)
		}
	}
	object, kind, err := d.decode(kept, defaults, into)
	if err != nil {
		return nil, nil, because
	}
	marked, ok := object.(client.Object)
	if !ok {
		return nil, nil, because
	}
	Mark(marked, describe(whole, head, try, because))
	return object, kind, nil
}

func (d decoder) decode(object map[string]any, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, nil, err
	}
	if into != nil {
		reflect.ValueOf(into).Elem().SetZero()
	}
	return d.upstream.Decode(data, defaults, into)
}
