package wire

import (
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// layout describes how the messages of a Go type are stored in memory: by field number, what one more occurrence costs.
type layout struct{ fields map[int]field }

// field is one field of a message.
type field struct {
	// slot is what one occurrence costs in bytes, without its content. Repeated fields are stored in slices that grow,
	// so they count twice.
	slot int64
	// message is the layout of the content; nil for text, numbers and unknown content.
	message *layout
	// factor is how many bytes of memory each byte of it takes if there is no message.
	factor int64
}

const (
	// mapEntry is what an entry of a map costs besides its key and its value.
	mapEntry = 64
	// opaque is the factor for messages of types with their own decoders: lists of short strings are the worst of
	// them.
	opaque = 16
)

var layouts sync.Map // of *layout by reflect.Type

// layoutOf returns the layout of a struct type. Types may contain themselves.
func layoutOf(t reflect.Type) *layout {
	if known, ok := layouts.Load(t); ok {
		return known.(*layout)
	}
	made := map[reflect.Type]*layout{}
	l := build(t, made)
	for t, l := range made {
		layouts.LoadOrStore(t, l)
	}
	return l
}

func build(t reflect.Type, made map[reflect.Type]*layout) *layout {
	if l, ok := made[t]; ok {
		return l
	}
	l := &layout{fields: map[int]field{}}
	made[t] = l
	for i := range t.NumField() {
		f := t.Field(i)
		if number, ok := numberOf(f.Tag.Get("protobuf")); ok {
			l.fields[number] = fieldOf(f.Type, made)
		}
	}
	return l
}

// numberOf parses the number from a tag, which contains wire type, number, and parts that are not needed here.
func numberOf(tag string) (int, bool) {
	parts := strings.Split(tag, ",")
	if len(parts) < 2 {
		return 0, false
	}
	number, err := strconv.Atoi(parts[1])
	return number, err == nil
}

func fieldOf(t reflect.Type, made map[reflect.Type]*layout) field {
	switch t.Kind() {
	case reflect.Pointer:
		f := fieldOf(t.Elem(), made)
		f.slot += int64(t.Elem().Size()) //nolint:gosec // the size of a Go type
		return f
	case reflect.Map:
		entry := &layout{fields: map[int]field{1: fieldOf(t.Key(), made), 2: fieldOf(t.Elem(), made)}}
		return field{slot: 2*int64(t.Key().Size()+t.Elem().Size()) + mapEntry, message: entry} //nolint:gosec // the size of a Go type
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return field{factor: 1}
		}
		f := fieldOf(t.Elem(), made)
		f.slot += 2 * int64(t.Elem().Size()) //nolint:gosec // the size of a Go type
		if f.message == nil && t.Elem().Kind() != reflect.String {
			f.factor = opaque
		}
		return f
	case reflect.String:
		return field{factor: 1}
	case reflect.Struct:
		if !tagged(t) {
			return field{factor: opaque}
		}
		return field{message: build(t, made)}
	default:
		return field{factor: 1}
	}
}

// tagged reports whether the fields of a struct are those of its message.
func tagged(t reflect.Type) bool {
	for i := range t.NumField() {
		if _, ok := numberOf(t.Field(i).Tag.Get("protobuf")); ok {
			return true
		}
	}
	return false
}
