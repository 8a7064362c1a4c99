// Package schema fills in defaults and validates objects as the API server would, without one.
package schema

import (
	"context"
	"errors"
	"fmt"

	"github.com/giantswarm/microerror"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
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

// New reads the schema from the YAML of a CustomResourceDefinition.
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

// Complete fills defaults into the object and returns what is wrong with it: unknown fields, values outside of the schema
// and broken rules, each with the field.
func (s *Schema) Complete(ctx context.Context, object map[string]any) error {
	unknown := pruning.PruneWithOptions(object, s.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	var errs []error
	for _, path := range unknown {
		errs = append(errs, fmt.Errorf("%s: there is no such field", path))
	}
	defaulting.Default(object, s.structural)
	list := validation.ValidateCustomResource(nil, object, s.openAPI)
	if len(list) == 0 {
		broken, _ := s.rules.Validate(ctx, (*field.Path)(nil), s.structural, object, nil, celconfig.RuntimeCELCostBudget)
		list = append(list, broken...)
	}
	for _, e := range list {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}
