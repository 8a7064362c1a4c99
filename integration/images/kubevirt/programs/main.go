// Command programs prints what is applied to install KubeVirt's operator, as YAML documents: what upstream publishes as
// kubevirt-operator.yaml, made by the code that makes that file. The images are its arguments.
//
// The module is also where build.sh builds KubeVirt's programs.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
)

const namespace = "kubevirt"

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: programs VERSION CONTROL-PLANE-IMAGE NODE-IMAGE")
		os.Exit(2)
	}
	if err := printManifests(os.Stdout, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// printManifests prints one document for each object, in an order in which they can be created. Each is in YAML's form
// of JSON.
func printManifests(w io.Writer, version, plane, node string) error {
	definition, err := components.NewKubeVirtCrd()
	if err != nil {
		return fmt.Errorf("making the definition of KubeVirt: %w", err)
	}
	objects := []any{
		&corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}},
		},
		definition, components.NewKubeVirtPriorityClassCR(),
	}
	for _, object := range rbac.GetAllOperator(namespace) {
		objects = append(objects, object)
	}
	operator := components.NewOperatorDeployment(
		namespace, "", "", version, "2", version, "", plane, plane, node, node, plane, plane, plane, plane, plane, node, node, node,
		plane, corev1.PullNever)
	for _, object := range append(objects, operator) {
		document, err := json.Marshal(object)
		if err != nil {
			return fmt.Errorf("encoding %T: %w", object, err)
		}
		if _, err := fmt.Fprintf(w, "---\n%s\n", document); err != nil {
			return fmt.Errorf("printing the manifests: %w", err)
		}
	}
	return nil
}
