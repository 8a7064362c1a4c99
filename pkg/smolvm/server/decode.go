package server

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// strictness says whether unknown fields are refused.
type strictness bool

const (
	lenient strictness = false
	strict  strictness = true
)

// required are the fields that a request must have.
var required = map[reflect.Type][]string{
	reflect.TypeFor[api.ExecRequest]():  {"command"},
	reflect.TypeFor[api.EnvVar]():       {"name", "value"},
	reflect.TypeFor[api.Port]():         {"host", "guest"},
	reflect.TypeFor[api.Mount]():        {"source", "target"},
	reflect.TypeFor[api.RegistryAuth](): {"username", "password"},
}

// largest are the largest numbers of fields that smolvm has in smaller types. None may be negative.
var largest = map[reflect.Type]map[string]uint64{
	reflect.TypeFor[api.CreateRequest](): {
		"cpus": math.MaxUint8, "memoryMb": math.MaxUint32, "storageGb": math.MaxInt64, "overlayGb": math.MaxInt64,
	},
	reflect.TypeFor[api.ResizeRequest](): {"storageGb": math.MaxInt64, "overlayGb": math.MaxInt64},
	reflect.TypeFor[api.ExecRequest]():   {"timeoutSecs": math.MaxInt64},
	reflect.TypeFor[api.Restart]():       {"maxRetries": math.MaxUint32},
}

// decode reads a request of JSON as axum and serde do: 415, 413, 400 and 422 in plain text. It returns the JSON without
// the fields that are unknown, too.
func decode[T any](w http.ResponseWriter, r *http.Request, limit int64, mode strictness) (value T, normal json.RawMessage, err error) {
	if !isJSON(r.Header.Get(contentType)) {
		return value, nil, rejectf(http.StatusUnsupportedMediaType, "Expected request with `Content-Type: application/json`")
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return value, nil, rejectf(http.StatusRequestEntityTooLarge, "Failed to buffer the request body: length limit exceeded")
	case err != nil:
		return value, nil, rejectf(http.StatusBadRequest, "Failed to buffer the request body: %v", err)
	}
	var syntax json.RawMessage
	if err := json.Unmarshal(text, &syntax); err != nil {
		return value, nil, rejectf(http.StatusBadRequest, "Failed to parse the request body as JSON: %v", err)
	}
	normal, err = normalise(reflect.TypeFor[T](), syntax, mode)
	if err != nil {
		return value, nil, err
	}
	if err := json.Unmarshal(normal, &value); err != nil {
		return value, nil, mismatchf("%v", err)
	}
	return value, normal, nil
}

func isJSON(header string) bool {
	media, _, err := mime.ParseMediaType(header)
	return err == nil && (media == typeJSON || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"))
}

func mismatchf(format string, arguments ...any) error {
	return rejectf(http.StatusUnprocessableEntity, "Failed to deserialize the JSON body into the target type: "+format, arguments...)
}

// normalise checks what encoding/json is too lenient with: fields in other case, null for what cannot be absent, fields
// that are missing, and the ranges of numbers.
func normalise(t reflect.Type, raw json.RawMessage, mode strictness) (json.RawMessage, error) {
	switch {
	case t.Kind() == reflect.Pointer && string(raw) == "null":
		return raw, nil
	case t.Kind() == reflect.Pointer:
		return normalise(t.Elem(), raw, mode)
	case t.Kind() == reflect.Struct:
		return normaliseStruct(t, raw, mode)
	case t.Kind() == reflect.Slice && string(raw) != "null":
		return normaliseSlice(t, raw, mode)
	case t.Kind() != reflect.String && t.Kind() != reflect.Interface && string(raw) == "null":
		return nil, mismatchf("invalid type: null")
	}
	return raw, nil
}

func normaliseSlice(t reflect.Type, raw json.RawMessage, mode strictness) (json.RawMessage, error) {
	var elements []json.RawMessage
	if err := json.Unmarshal(raw, &elements); err != nil {
		return nil, mismatchf("%v", err)
	}
	for i, element := range elements {
		if string(element) == "null" {
			return nil, mismatchf("[%d]: invalid type: null", i)
		}
		normal, err := normalise(t.Elem(), element, mode)
		if err != nil {
			return nil, err
		}
		elements[i] = normal
	}
	return json.Marshal(elements)
}

func normaliseStruct(t reflect.Type, raw json.RawMessage, mode strictness) (json.RawMessage, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil || given == nil {
		return nil, mismatchf("invalid type: expected struct %s", t.Name())
	}
	fields := jsonFields(t)
	for name, value := range given {
		known, ok := fields[name]
		switch {
		case !ok && mode == strict:
			return nil, mismatchf("unknown field `%s`", name)
		case !ok:
			delete(given, name)
			continue
		case slices.Contains(required[t], name) && string(value) == "null":
			return nil, mismatchf("%s: invalid type: null", name)
		case !inRange(t, name, value):
			return nil, mismatchf("%s: invalid value: %s", name, value)
		}
		normal, err := normalise(known, value, mode)
		if err != nil {
			return nil, err
		}
		given[name] = normal
	}
	for _, name := range required[t] {
		if _, ok := given[name]; !ok {
			return nil, mismatchf("missing field `%s`", name)
		}
	}
	return json.Marshal(given)
}

// jsonFields returns the types of the fields of a struct by their names in JSON.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for field := range t.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
			fields[name] = field.Type
		}
	}
	return fields
}

func inRange(t reflect.Type, name string, value json.RawMessage) bool {
	most, ok := largest[t][name]
	if !ok || string(value) == "null" {
		return true
	}
	number, err := strconv.ParseUint(string(value), 10, 64)
	return err == nil && number <= most
}
