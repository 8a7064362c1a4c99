package undecodable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

const (
	// namedFields is how many fields are named: once a user has corrected them, the next ones are named.
	namedFields = 3
	// valueLength and reasonLength bound how much of a value, and of what is wrong with it, is repeated.
	valueLength, reasonLength = 64, 200
)

// generic returns a JSON object whose numbers keep their notation.
func generic(data []byte) (map[string]any, error) {
	reader := json.NewDecoder(bytes.NewReader(data))
	reader.UseNumber()
	var object map[string]any
	err := reader.Decode(&object)
	return object, err
}

// at returns the value of a field.
func at(object map[string]any, path []string) (value any, ok bool) {
	value = object
	for _, name := range path {
		fields, isObject := value.(map[string]any)
		if !isObject {
			return nil, false
		}
		if value, ok = fields[name]; !ok {
			return nil, false
		}
	}
	return value, true
}

// put sets a field of an object.
func put(object map[string]any, path []string, value any) map[string]any {
	fields := object
	for _, name := range path[:len(path)-1] {
		inner, ok := fields[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			fields[name] = inner
		}
		fields = inner
	}
	fields[path[len(path)-1]] = value
	return object
}

// describe names the fields of an object that cannot be decoded, each with its value and what is wrong with it.
func describe(whole map[string]any, head func() map[string]any, try func(map[string]any) error, because error) string {
	s := search{head: head, try: try}
	for _, name := range slices.Sorted(maps.Keys(whole)) {
		if _, ofHead := head()[name]; !ofHead {
			s.look([]any{name}, whole[name])
		}
	}
	if len(s.found) == 0 {
		return reason(because)
	}
	return strings.Join(s.found, "; ")
}

// search finds fields that cannot be decoded: it decodes each by itself, and the fields inside it only if that fails.
type search struct {
	head  func() map[string]any
	try   func(map[string]any) error
	found []string
}

// look checks the field at a path of names and positions.
func (s *search) look(path []any, value any) {
	if len(s.found) == namedFields {
		return
	}
	err := s.only(path, value)
	if err == nil {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		if s.only(path, map[string]any{}) == nil {
			for _, name := range slices.Sorted(maps.Keys(v)) {
				s.look(append(slices.Clone(path), name), v[name])
			}
			return
		}
	case []any:
		if s.only(path, []any{}) == nil {
			for i := range v {
				s.look(append(slices.Clone(path), i), v[i])
			}
			return
		}
	}
	s.found = append(s.found, fmt.Sprintf("%s: %s: %s", dotted(path), shown(value), reason(err)))
}

// only decodes an object that has no other field.
func (s *search) only(path []any, value any) error {
	for _, step := range slices.Backward(path[1:]) {
		if name, ok := step.(string); ok {
			value = map[string]any{name: value}
		} else {
			value = []any{value}
		}
	}
	return s.try(put(s.head(), []string{path[0].(string)}, value))
}

func dotted(path []any) string {
	var b strings.Builder
	for i, step := range path {
		switch v := step.(type) {
		case int:
			b.WriteString("[" + strconv.Itoa(v) + "]")
		case string:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(v)
		}
	}
	return b.String()
}

func shown(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return "a value"
	}
	return text.Beginning(string(data), valueLength)
}

// mismatch matches what Go reports about a value of another type.
var mismatch = regexp.MustCompile(`cannot unmarshal .* of type (?:\S+\.)?(\S+)$`)

func reason(err error) string {
	if found := mismatch.FindStringSubmatch(err.Error()); found != nil {
		return "is not a value of type " + found[1]
	}
	return text.Beginning(strings.TrimPrefix(err.Error(), "json: "), reasonLength)
}
