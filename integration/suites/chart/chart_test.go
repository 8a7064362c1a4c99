// Package chart_test tests the chart: what it renders, what it rejects, and whether an operator with only the chart's
// permissions can do its work.
package chart_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/helmchart"
)

const (
	chart      = "../../../helm/kvm-operator"
	release    = "kvm-operator"
	kubernetes = helmchart.Kubernetes
	// full sets every value to something other than its default.
	full = "testdata/full.yaml"
)

// run runs helm and returns its output and its error.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return helmchart.Run(t, args...)
}

// helm runs commands that have to succeed.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	return helmchart.Helm(t, args...)
}

// render returns what helm would install.
func render(t *testing.T, args ...string) string {
	t.Helper()
	return helm(t, append([]string{"template", release, chart, "--namespace=giantswarm", "--kube-version=" + kubernetes}, args...)...)
}

// rendered holds the objects that tests examine.
type rendered struct {
	deployment appsv1.Deployment
	// files are the contents of ConfigMaps and Secrets by kind and name.
	files map[string]map[string]string
	// all are the metadata of all objects.
	all []metav1.PartialObjectMetadata
}

func parse(t *testing.T, text string) rendered {
	t.Helper()
	r := rendered{files: map[string]map[string]string{}}
	for document := range bytes.SplitSeq([]byte(text), []byte("\n---\n")) {
		object := metav1.PartialObjectMetadata{}
		decode(t, document, &object)
		switch object.Kind {
		case "":
			continue
		case "Deployment":
			if object.Name != smolVMController {
				decode(t, document, &r.deployment)
			}
		case "ConfigMap":
			content := corev1.ConfigMap{}
			decode(t, document, &content)
			r.files["ConfigMap "+object.Name] = content.Data
		case "Secret":
			content := corev1.Secret{}
			decode(t, document, &content)
			r.files["Secret "+object.Name] = content.StringData
		}
		r.all = append(r.all, object)
	}
	return r
}

func decode(t *testing.T, document []byte, into any) {
	t.Helper()
	helmchart.Decode(t, document, into)
}

// container returns the operator's container.
func (r rendered) container() corev1.Container { return r.deployment.Spec.Template.Spec.Containers[0] }

// commandLine adapts the operator's container to this machine: it writes the mounted files to a temporary directory and
// makes the arguments refer to them.
func (r rendered) commandLine(t *testing.T) []string {
	t.Helper()
	root := t.TempDir()
	arguments := strings.Join(r.container().Args, "\n")
	for _, mount := range r.container().VolumeMounts {
		dir := filepath.Join(root, mount.MountPath)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, content := range r.files[r.source(mount.Name)] {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		arguments = strings.ReplaceAll(arguments, mount.MountPath, dir)
	}
	return strings.Split(arguments, "\n")
}

// source returns the source of a volume by its name in files.
func (r rendered) source(volume string) string {
	for _, v := range r.deployment.Spec.Template.Spec.Volumes {
		switch {
		case v.Name != volume:
		case v.ConfigMap != nil:
			return "ConfigMap " + v.ConfigMap.Name
		case v.Secret != nil:
			return "Secret " + v.Secret.SecretName
		}
	}
	return ""
}
