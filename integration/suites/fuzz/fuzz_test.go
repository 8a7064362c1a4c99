// Package fuzz_test changes every field of a KVMConfig in every way that its schema defines, and checks the resulting
// cluster.
package fuzz_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/helm"
	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

var theLab *lab.Lab

func TestMain(m *testing.M) { os.Exit(lab.Main(m, &theLab, 1, managementcluster.Options{})) }

// passes is the largest number of reconciles until a cluster rests. More is a loop.
const passes = 40

func TestEveryFieldInEveryWay(t *testing.T) {
	driver := theLab.Driver(t)
	operator := driver.Instance(t, lab.InstanceOptions{})
	config := full("fuzz")
	if err := theLab.Client.Create(context.Background(), config); err != nil {
		t.Fatal(err)
	}
	settle(t, operator, config)
	base, want := specOf(t, config), theLab.Dump(t, config)
	refused, accepted, created := 0, 0, 0
	for i, m := range mutations(specSchema(t), base) {
		t.Run(m.name, func(t *testing.T) {
			err := update(config, m.spec)
			switch {
			case err == nil:
				accepted++
				settle(t, operator, config)
				if err := update(config, base); err != nil {
					// A field that grew cannot shrink, so the cluster continues from there.
					base, want = m.spec, theLab.Dump(t, config)
					return
				}
				settle(t, operator, config)
				if diff := cmp.Diff(want, theLab.Dump(t, config)); diff != "" {
					t.Errorf("A → B → A does not end as A (-A +now):\n%s", diff)
				}
			case apierrors.IsInvalid(err):
				refused++
				created += tryNew(t, operator, m, fmt.Sprintf("z%d", i))
			default:
				t.Errorf("neither accepted nor refused as invalid: %s", err)
			}
		})
	}
	t.Logf("%d changes accepted, %d refused by the API server, %d of these accepted for a new cluster", accepted, refused, created)
	if accepted < 80 || refused < 100 {
		t.Errorf("too few changes were tried")
	}
}

// full is a cluster that sets as many fields as possible.
func full(id string) *v1alpha1.KVMConfig {
	data, err := os.ReadFile("../../../docs/examples/full.yaml")
	if err != nil {
		panic(err)
	}
	config := &v1alpha1.KVMConfig{}
	if err := yaml.Unmarshal(data, config); err != nil {
		panic(err)
	}
	config.Name, config.Namespace, config.Spec.Cluster.ID = id, "default", id
	config.Labels = nil
	return config
}

// tryNew creates a new cluster from a change that an existing one rejects, and returns the number of such clusters.
func tryNew(t *testing.T, operator *lab.Instance, m mutation, id string) int {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": m.spec}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("KVMConfig"))
	u.SetNamespace("default")
	u.SetName(id)
	if err := theLab.Client.Create(context.Background(), u); err != nil {
		if !apierrors.IsInvalid(err) {
			t.Errorf("neither accepted nor refused as invalid: %s", err)
		}
		return 0
	}
	settle(t, operator, fixture.MakeCluster(id).Obj())
	u.SetFinalizers(nil)
	if err := theLab.Client.Delete(context.Background(), u); err != nil {
		t.Fatal(err)
	}
	return 1
}

// settle reconciles until the cluster rests, which it must after any change.
func settle(t *testing.T, operator *lab.Instance, config *v1alpha1.KVMConfig) {
	t.Helper()
	for quiet, pass := 0, 0; quiet < 2; pass++ {
		before := len(operator.Requests.All())
		err := operator.Reconcile(context.Background(), config)
		if err == nil && len(operator.Requests.All()) == before && seen(config) {
			quiet++
		} else {
			quiet = 0
		}
		if pass > passes {
			t.Fatalf("no rest after %d passes, last error %v, last requests %v", passes, err, operator.Requests.All()[before:])
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// seen reports whether the operator has seen the current generation of the KVMConfig, or its deletion.
func seen(config *v1alpha1.KVMConfig) bool {
	current := &v1alpha1.KVMConfig{}
	if err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(config), current); err != nil {
		return apierrors.IsNotFound(err)
	}
	return current.Status.ObservedGeneration == current.Generation
}

func update(config *v1alpha1.KVMConfig, spec map[string]any) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("KVMConfig"))
	if err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(config), u); err != nil {
		return err
	}
	u.Object["spec"] = runtime.DeepCopyJSON(spec)
	return theLab.Client.Update(context.Background(), u)
}

func specOf(t *testing.T, config *v1alpha1.KVMConfig) map[string]any {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(config)
	if err != nil {
		t.Fatal(err)
	}
	return content["spec"].(map[string]any)
}

func specSchema(t *testing.T) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(helm.KVMConfigCRD, &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
}
