// Package definitions has the CustomResourceDefinitions that a cluster with KubeVirt, CDI and Multus has, without the
// programs behind them.
package definitions

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// Names of definitions.
const (
	VirtualMachines         = "virtualmachines.kubevirt.io"
	VirtualMachineInstances = "virtualmachineinstances.kubevirt.io"
	DataVolumes             = "datavolumes.cdi.kubevirt.io"
	Attachments             = "network-attachment-definitions.k8s.cni.cncf.io"
)

// KubeVirt returns definitions of KubeVirt, made by its own code, which the tool kubevirt prints. The tool is in the
// folder of KUBEBUILDER_ASSETS.
func KubeVirt(ctx context.Context, names ...string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	tool := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubevirt")
	printed, err := exec.CommandContext(ctx, tool, "manifests").Output() //nolint:gosec // who runs the tests chooses the tools
	if err != nil {
		return nil, fmt.Errorf("printing the definitions of KubeVirt with %s, which make tools builds: %w", tool, err)
	}
	var found []*apiextensionsv1.CustomResourceDefinition
	for document := range bytes.SplitSeq(printed, []byte("\n---\n")) {
		// One object is one line of JSON. Only the wanted ones are decoded as a whole, because their schemas are large.
		document = bytes.TrimPrefix(document, []byte("---\n"))
		var of metav1.PartialObjectMetadata
		if err := json.Unmarshal(document, &of); err != nil {
			return nil, fmt.Errorf("decoding what %s prints: %w", tool, err)
		}
		if of.Kind != "CustomResourceDefinition" || !slices.Contains(names, of.Name) {
			continue
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := json.Unmarshal(document, definition); err != nil {
			return nil, fmt.Errorf("decoding a definition of KubeVirt: %w", err)
		}
		definition.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
		found = append(found, definition)
	}
	if len(found) != len(names) {
		return nil, fmt.Errorf("%s prints %d of the definitions %v", tool, len(found), names)
	}
	return found, nil
}

//go:embed datavolumes.yaml
var dataVolumes []byte

// CDI returns the definition of DataVolumes, made from CDI's API types, and those of the other kinds that KubeVirt waits for
// when there is that one, which accept every object.
func CDI() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(dataVolumes, definition); err != nil {
		return nil, fmt.Errorf("decoding the definition of DataVolumes: %w", err)
	}
	all := []*apiextensionsv1.CustomResourceDefinition{definition}
	for kind, scope := range map[string]apiextensionsv1.ResourceScope{
		"DataSource": apiextensionsv1.NamespaceScoped, "StorageProfile": apiextensionsv1.ClusterScoped,
		"CDI": apiextensionsv1.ClusterScoped, "CDIConfig": apiextensionsv1.ClusterScoped,
	} {
		other := definition.DeepCopy()
		singular := strings.ToLower(kind)
		other.Name = singular + "s." + definition.Spec.Group
		other.Spec.Scope = scope
		other.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Singular: singular, Plural: singular + "s"}
		other.Spec.Versions[0].AdditionalPrinterColumns = nil
		all = append(all, WithoutSchemas([]*apiextensionsv1.CustomResourceDefinition{other})...)
	}
	return all, nil
}

// Multus returns the definition of NetworkAttachmentDefinitions, with the schema that Multus installs.
func Multus() *apiextensionsv1.CustomResourceDefinition {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"config": text}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: Attachments},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "k8s.cni.cncf.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "network-attachment-definitions", Singular: "network-attachment-definition",
				Kind: "NetworkAttachmentDefinition", ShortNames: []string{"net-attach-def"},
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"apiVersion": text, "kind": text, "metadata": {Type: "object"}, "spec": spec},
				}},
			}},
		},
	}
}

// WithoutSchemas returns definitions of the same names and subresources that accept every object, which an API server
// serves, and drops, within moments. It publishes the schemas of KubeVirt in seconds.
func WithoutSchemas(all []*apiextensionsv1.CustomResourceDefinition) []*apiextensionsv1.CustomResourceDefinition {
	anything := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	var bare []*apiextensionsv1.CustomResourceDefinition
	for _, definition := range all {
		definition = definition.DeepCopy()
		for i := range definition.Spec.Versions {
			definition.Spec.Versions[i].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: anything}
		}
		bare = append(bare, definition)
	}
	return bare
}
