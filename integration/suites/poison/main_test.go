// Package poison_test stores objects that the operator cannot decode, and checks the effect on other objects.
package poison_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// theLab is the management cluster of all tests here. It is an API server alone. The tests change its
// CustomResourceDefinitions, so they do not run in parallel.
var theLab *lab.Lab

func TestMain(m *testing.M) { os.Exit(lab.Main(m, &theLab, 1, managementcluster.Options{})) }

const (
	kvmConfigs = "kvmconfigs.provider.giantswarm.io"
	releases   = "releases.release.giantswarm.io"
	machines   = "vms.vmoperator.jdrupes.org"
)

// changeSchema changes the schema of a kind until the returned function is called, or the test ends.
func changeSchema(t *testing.T, name string, by func(*apiextensionsv1.CustomResourceDefinition)) (restore func()) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	theLab.Get(t, crd)
	spec := crd.Spec.DeepCopy()
	lab.Change(t, theLab, crd, by)
	restored := false
	restore = func() {
		if !restored {
			restored = true
			lab.Change(t, theLab, crd, func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec = *spec })
		}
	}
	t.Cleanup(restore)
	return restore
}

// loosen makes the API server accept any spec, as an older schema accepts some that Go does not.
func loosen(t *testing.T, name string) (restore func()) {
	t.Helper()
	return changeSchema(t, name, func(crd *apiextensionsv1.CustomResourceDefinition) {
		root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		root.XValidations, root.Required = nil, nil
		root.Properties["spec"] = apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	})
}

// untyped returns an object without a Go type. One field of the spec, given as a path, is set to a value in JSON.
func untyped(t *testing.T, object client.Object, path, value string) *unstructured.Unstructured {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &u.Object); err != nil {
		t.Fatal(err)
	}
	var v any
	decoder := json.NewDecoder(strings.NewReader(value))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		t.Fatal(err)
	}
	if number, ok := v.(json.Number); ok {
		if v, err = number.Int64(); err != nil {
			t.Fatal(err)
		}
	}
	if err := unstructured.SetNestedField(u.Object, v, strings.Split(path, ".")...); err != nil {
		t.Fatal(err)
	}
	unstructured.RemoveNestedField(u.Object, "status")
	return u
}

// store creates an object once the API server has the schema that accepts it.
func store(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error { return theLab.Client.Create(context.Background(), object.DeepCopy()) })
	t.Cleanup(func() { remove(t, object) })
}

// set sets one field of the spec once the API server accepts it.
func set(t *testing.T, object client.Object, path, value string) {
	t.Helper()
	patch := value
	steps := strings.Split(path, ".")
	for i := len(steps) - 1; i >= 0; i-- {
		patch = fmt.Sprintf("{%q:%s}", steps[i], patch)
	}
	lab.Eventually(t, lab.Timeout, func() error {
		return theLab.Client.Patch(context.Background(), asUntyped(t, object), client.RawPatch(types.MergePatchType, []byte(patch)))
	})
}

func asUntyped(t *testing.T, object client.Object) *unstructured.Unstructured {
	t.Helper()
	kind, err := theLab.Client.GroupVersionKindFor(object)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(object.GetNamespace())
	u.SetName(object.GetName())
	return u
}

// remove deletes an object and removes its finalizers.
func remove(t *testing.T, object client.Object) {
	ctx := context.Background()
	u := asUntyped(t, object)
	_ = theLab.Client.Patch(ctx, u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	if err := client.IgnoreNotFound(theLab.Client.Delete(ctx, u)); err != nil {
		t.Errorf("cleaning up: %s", err)
	}
}

// conditionOf returns a condition of an object without a Go type, as "status reason message".
func conditionOf(t *testing.T, object client.Object, kind string) string {
	t.Helper()
	u := asUntyped(t, object)
	if err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(object), u); err != nil {
		t.Fatal(err)
	}
	conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conditions {
		if fields := c.(map[string]any); fields["type"] == kind {
			return fmt.Sprintf("%s %s %s", fields["status"], fields["reason"], fields["message"])
		}
	}
	return ""
}

// awaitSaid waits until a condition of the object contains all the words.
func awaitSaid(t *testing.T, object client.Object, kind string, words ...string) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		said := conditionOf(t, object, kind)
		for _, word := range words {
			if !strings.Contains(said, word) {
				return fmt.Errorf("%s of %s is %q and does not say %q", kind, object.GetName(), said, word)
			}
		}
		return nil
	})
}

// awaitWorkedOn waits until the operator has created what it can create without hosts, and has reported what it waits
// for.
func awaitWorkedOn(t *testing.T, config *v1alpha1.KVMConfig) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		if err := theLab.Observed(config); err != nil {
			return err
		}
		name := client.ObjectKey{Namespace: key.Namespace(config.Spec.Cluster.ID), Name: key.DeploymentName(key.RoleMaster, "m0aaa")}
		return theLab.Client.Get(context.Background(), name, &appsv1.Deployment{})
	})
}

// made creates a KVMConfig that is deleted with the test.
func made(t *testing.T, c *fixture.Cluster) *v1alpha1.KVMConfig {
	t.Helper()
	config := c.Obj()
	lab.Eventually(t, lab.Timeout, func() error { return theLab.Client.Create(context.Background(), config) })
	t.Cleanup(func() { remove(t, config) })
	return config
}
