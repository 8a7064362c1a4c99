// Package wire calculates how much memory it would take to decode what a server sends, before it is decoded.
//
// Two bytes of a response can become a kilobyte of memory: an item without content in a list of Nodes is as large as a
// Node. So the number of bytes on the wire is no bound. The framing of protobuf shows what is in a message without
// decoding it, and the Go types show how large each part becomes.
//
// See https://protobuf.dev/programming-guides/encoding/ and
// https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding.
package wire

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// ErrTooLarge is the error for data that would take more memory than allowed.
	ErrTooLarge = errors.New("it would take more memory than the operator spends on one answer")
	// ErrMalformed is the error for data that is not a response of an API server.
	ErrMalformed = errors.New("it is not what an API server sends")
)

// deepest is how deeply messages may be nested, because decoders recurse for each level. The schemas of
// CustomResourceDefinitions are the deepest.
const deepest = 128

// magic begins each object.
var magic = []byte("k8s\x00")

// Cost returns how many bytes of memory a response with one object or list takes once it is decoded by the scheme. The
// error is ErrTooLarge if that is more than most, and ErrMalformed if the data is not an object of the scheme.
func Cost(scheme *runtime.Scheme, data []byte, most int64) (int64, error) {
	kind, raw, err := envelope(data)
	if err != nil {
		return 0, err
	}
	object, err := scheme.New(kind)
	if err != nil {
		return 0, fmt.Errorf("%w: an object of kind %.64q in %.64q", ErrMalformed, kind.Kind, kind.GroupVersion())
	}
	t := reflect.TypeOf(object).Elem()
	m := meter{most: most, spent: int64(t.Size()) + int64(len(data))} //nolint:gosec // the size of a Go type
	err = m.message(raw, layoutOf(t), 0)
	return m.spent, err
}

// EventCost is Cost for an event of a watch.
func EventCost(scheme *runtime.Scheme, data []byte, most int64) (int64, error) {
	object, err := last(data, 2)
	if err != nil {
		return 0, err
	}
	raw, err := last(object, 1)
	if err != nil {
		return 0, err
	}
	cost, err := Cost(scheme, raw, most)
	return cost + int64(len(data)), err
}

// ObjectCost returns how many bytes of memory an object takes; 0 for an object without a protobuf encoding.
func ObjectCost(object any) int64 {
	known, ok := object.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return 0
	}
	raw, err := known.Marshal()
	if err != nil {
		return 0
	}
	t := reflect.TypeOf(object).Elem()
	m := meter{most: 1 << 40, spent: int64(t.Size())} //nolint:gosec // the size of a Go type
	_ = m.message(raw, layoutOf(t), 0)                // it was encoded by the type itself
	return m.spent
}

// envelope reads the kind of an object and its content. If a field is repeated, decoders use the last one.
func envelope(data []byte) (schema.GroupVersionKind, []byte, error) {
	content, found := bytes.CutPrefix(data, magic)
	if !found {
		return schema.GroupVersionKind{}, nil, ErrMalformed
	}
	var apiVersion, kind string
	var raw []byte
	err := each(content, func(number protowire.Number, value []byte) error {
		switch number {
		case 1:
			return each(value, func(number protowire.Number, value []byte) error {
				switch number {
				case 1:
					apiVersion = string(value)
				case 2:
					kind = string(value)
				}
				return nil
			})
		case 2:
			raw = value
		}
		return nil
	})
	return schema.FromAPIVersionAndKind(apiVersion, kind), raw, err
}

// last returns the last field with the number.
func last(data []byte, number protowire.Number) (found []byte, err error) {
	err = each(data, func(n protowire.Number, value []byte) error {
		if n == number {
			found = value
		}
		return nil
	})
	return found, err
}

// each calls do with each field of a message that has its own length.
func each(data []byte, do func(protowire.Number, []byte) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return ErrMalformed
		}
		data = data[n:]
		n = -1
		switch kind {
		case protowire.BytesType:
			var value []byte
			if value, n = protowire.ConsumeBytes(data); n >= 0 {
				if err := do(number, value); err != nil {
					return err
				}
			}
		case protowire.VarintType, protowire.Fixed32Type, protowire.Fixed64Type:
			n = protowire.ConsumeFieldValue(number, kind, data)
		case protowire.StartGroupType, protowire.EndGroupType: // no API server sends groups
		}
		if n < 0 {
			return ErrMalformed
		}
		data = data[n:]
	}
	return nil
}

// meter adds up the cost of decoding.
type meter struct{ spent, most int64 }

func (m *meter) message(data []byte, l *layout, depth int) error {
	if depth > deepest {
		return fmt.Errorf("%w: it is nested deeper than %d levels", ErrTooLarge, deepest)
	}
	return each(data, func(number protowire.Number, value []byte) error {
		f, known := l.fields[int(number)]
		if !known {
			return nil
		}
		m.spent += f.slot + f.factor*int64(len(value))
		if m.spent > m.most {
			return ErrTooLarge
		}
		if f.message == nil {
			return nil
		}
		return m.message(value, f.message, depth+1)
	})
}
