// Package intern lets the objects in a cache share the strings of their metadata: the objects of one owner have the same
// labels and annotations, and decoding gives each object its own copy.
package intern

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
)

const (
	// mostKnown is how many strings are known at the same time. Watches deliver the objects of an owner shortly after
	// one another, so that it need not be all strings in the cache.
	mostKnown = 4096
	// longest is the length in bytes of what is shared; longer strings rarely occur twice.
	longest = 128
)

var known = lru.New(mostKnown)

// Metadata replaces the strings of an object's metadata by those of earlier objects. It is for transforms of caches,
// which may change the object.
func Metadata(object metav1.Object) {
	object.SetNamespace(shared(object.GetNamespace()))
	object.SetLabels(all(object.GetLabels()))
	object.SetAnnotations(all(object.GetAnnotations()))
}

func all(of map[string]string) map[string]string {
	if of == nil {
		return nil
	}
	// A new map, because assigning to a key keeps the key that is there.
	interned := make(map[string]string, len(of))
	for name, value := range of {
		interned[shared(name)] = shared(value)
	}
	return interned
}

func shared(s string) string {
	if s == "" || len(s) > longest {
		return s
	}
	if first, ok := known.Get(s); ok {
		return first.(string)
	}
	known.Add(s, s)
	return s
}
