package server

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// object is an object of JSON.
type object map[string]any

// Types of JSON Schema.
const (
	typeOfObject  = "object"
	typeOfArray   = "array"
	typeOfString  = "string"
	typeOfInteger = "integer"
	typeOfNumber  = "number"
	typeOfBoolean = "boolean"
)

// OpenAPI returns the API's description in the form of OpenAPI 3.1, made of the routes and types, so that it has all of
// them.
func OpenAPI(version string) []byte {
	if version == "" {
		version = "0.0.0"
	}
	schemas := schemaSet{}
	paths := map[string]object{}
	for _, r := range routes() {
		path := strings.ReplaceAll(r.pattern, "...}", "}")
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path][strings.ToLower(r.method)] = operation(r, schemas)
	}
	// These are in streams, which a media type describes as a whole.
	for _, part := range []any{api.WatchEvent{}, api.ExecExit{}, api.StreamError{}} {
		schemas.of(reflect.TypeOf(part))
	}
	document, err := json.MarshalIndent(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "smolvm", "version": version,
			"description": "Machines of a node, by the HTTP API of smolvm 1.9.3. Fields and routes marked as additions are not smolvm's.",
		},
		"paths":      paths,
		"components": object{"schemas": schemas},
	}, "", "  ")
	if err != nil {
		// All values above can be encoded, which a test proves.
		panic(err)
	}
	return append(document, '\n')
}

func operation(r route, schemas schemaSet) object {
	described := object{"summary": r.summary, "responses": object{
		"200":     object{"description": "Done", "content": content(r.answer, r.answerType, schemas)},
		"default": object{"description": "An error", "content": content(api.Error{}, "", schemas)},
	}}
	if parameters := parametersOf(r); len(parameters) > 0 {
		described["parameters"] = parameters
	}
	if r.request != nil || r.requestType != "" {
		described["requestBody"] = object{"required": !r.optional, "content": content(r.request, r.requestType, schemas)}
	}
	if r.watchable {
		responses, _ := described["responses"].(object)
		both := content(r.answer, "", schemas)
		both[api.WatchContentType] = object{"schema": schemas.of(reflect.TypeFor[api.WatchEvent]())}
		responses["200"] = object{"description": "Done", "content": both}
	}
	return described
}

func content(value any, media string, schemas schemaSet) object {
	switch {
	case value != nil:
		return object{typeJSON: object{"schema": schemas.of(reflect.TypeOf(value))}}
	case media == typeJSON:
		return object{media: object{"schema": object{"type": typeOfObject}}}
	}
	media, _, _ = strings.Cut(media, ";")
	return object{media: object{"schema": object{"type": typeOfString}}}
}

func parametersOf(r route) []object {
	var parameters []object
	for _, segment := range strings.Split(r.pattern, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			name = strings.TrimSuffix(strings.TrimSuffix(name, "}"), "...")
			parameters = append(parameters, object{"name": name, "in": "path", "required": true, "schema": object{"type": typeOfString}})
		}
	}
	for _, p := range r.query {
		parameters = append(parameters, object{"name": p.name, "in": "query", "description": p.description, "schema": object{"type": p.kind}})
	}
	return parameters
}

// schemaSet are the schemas of structs by their names.
type schemaSet map[string]object

// of returns the schema of a type, and adds the structs in it to the set.
func (s schemaSet) of(t reflect.Type) object {
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Struct:
		return s.ofStruct(t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": typeOfString, "contentEncoding": "base64"}
		}
		return object{"type": typeOfArray, "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": typeOfObject}
	case reflect.Bool:
		return object{"type": typeOfBoolean}
	case reflect.Float64:
		return object{"type": typeOfNumber}
	case reflect.String:
		return object{"type": typeOfString}
	case reflect.Int, reflect.Int64, reflect.Uint16:
		return object{"type": typeOfInteger}
	default:
		panic("the API has a field of kind " + t.Kind().String())
	}
}

func (s schemaSet) ofStruct(t reflect.Type) object {
	if t.Name() == "" {
		return s.fields(t)
	}
	if s[t.Name()] == nil {
		s[t.Name()] = object{}
		s[t.Name()] = s.fields(t)
	}
	return object{"$ref": "#/components/schemas/" + t.Name()}
}

func (s schemaSet) fields(t reflect.Type) object {
	properties := object{}
	must := slices.Clone(required[t])
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		schema := s.of(field.Type)
		if most, ok := largest[t][name]; ok {
			schema["minimum"], schema["maximum"] = 0, most
		}
		properties[name] = schema
		if options == "" && !isRequest(t) && !slices.Contains(must, name) {
			must = append(must, name)
		}
	}
	schema := object{"type": typeOfObject, "properties": properties}
	if len(must) > 0 {
		slices.Sort(must)
		schema["required"] = must
	}
	if t == reflect.TypeFor[api.ExecRequest]() {
		schema["additionalProperties"] = false
	}
	return schema
}

// isRequest reports whether a struct is all of a request, whose fields may be absent unless they are required.
func isRequest(t reflect.Type) bool { return strings.HasSuffix(t.Name(), "Request") }
