// Package schema fills in defaults and validates objects as the API server would, without one.
package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/giantswarm/microerror"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// Schema is the schema of the one version of a CustomResourceDefinition.
type Schema struct {
	structural *structuralschema.Structural
	openAPI    validation.SchemaValidator
	rules      *cel.Validator
}

// New parses the schema from the YAML of a CustomResourceDefinition.
func New(crd []byte) (*Schema, error) {
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(crd, &definition); err != nil {
		return nil, microerror.Mask(err)
	}
	var internal apiextensions.CustomResourceValidation
	versioned := definition.Spec.Versions[0].Schema
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(versioned, &internal, nil); err != nil {
		return nil, microerror.Mask(err)
	}
	structural, err := structuralschema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	openAPI, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	return &Schema{structural: structural, openAPI: openAPI, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// Complete fills defaults into the object and returns what is wrong with it: unknown fields, values that violate the
// schema, duplicate entries and violated rules, one line for each field. The steps and their order are those of an API
// server.
func (s *Schema) Complete(ctx context.Context, object map[string]any) error {
	unknown := pruning.PruneWithOptions(object, s.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	var errs []error
	for _, path := range unknown {
		errs = append(errs, fmt.Errorf("%s: there is no such field", path))
	}
	// Clients in Go write null for empty values.
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s.structural)
	defaulting.Default(object, s.structural)
	list := validation.ValidateCustomResource(nil, object, s.openAPI)
	list = append(list, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	if !slices.ContainsFunc(list, blocksRules) {
		broken, _ := s.rules.Validate(ctx, (*field.Path)(nil), s.structural, object, nil, celconfig.RuntimeCELCostBudget)
		list = append(list, broken...)
	}
	return errors.Join(append(errs, oneLineEach(list)...)...)
}

// blocksRules reports whether an API server evaluates no rules because of the error: a rule might not find what it
// refers to.
func blocksRules(e *field.Error) bool {
	return slices.Contains([]field.ErrorType{field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid}, e.Type)
}

// oneLineEach returns the first error of each field. Errors that name their field only in the text are the least
// informative, so they come last.
func oneLineEach(list field.ErrorList) []error {
	var named, nameless field.ErrorList
	for _, e := range list {
		if _, path, found := strings.Cut(e.Detail, " in "); found && (e.Field == "" || e.Field == "<nil>") {
			nameless = append(nameless, &field.Error{Type: e.Type, Field: path, BadValue: e.BadValue, Detail: e.Detail})
			continue
		}
		named = append(named, e)
	}
	seen := map[string]bool{}
	var lines []error
	for _, e := range append(named, nameless...) {
		if !seen[e.Field] {
			seen[e.Field] = true
			lines = append(lines, e)
		}
	}
	return lines
}
