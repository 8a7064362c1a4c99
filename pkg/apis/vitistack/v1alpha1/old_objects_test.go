package v1alpha1_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// TestStoredObjectsOfAnOlderCRDStayReadable replaces CRDs that allow everything, as any older ones allow a part of that,
// by those of this package. What is stored by then can be listed in Go, and the operator can put its finalizer and its
// status there.
func TestStoredObjectsOfAnOlderCRDStayReadable(t *testing.T) {
	upgraded := upgrade(t)
	for name, check := range map[string]func(*testing.T, client.Client){
		"Machines":              readOldMachines,
		"NetworkConfigurations": readOldNetworks,
		"MachineClasses":        readOldClasses,
	} {
		t.Run(name, func(t *testing.T) { check(t, upgraded) })
	}
}

func readOldMachines(t *testing.T, upgraded client.Client) {
	var list v1alpha1.MachineList
	if err := upgraded.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	got := map[string]v1alpha1.Machine{}
	for _, item := range list.Items {
		got[item.Name] = item
	}
	if len(got) != 3 {
		t.Fatalf("there are %d Machines", len(got))
	}
	if m := got["running"]; m.Spec.MachineClass != "medium" || m.Spec.Memory != 6442450944 || m.Spec.CPU.Cores != 3 || m.Spec.Disks[0].SizeGB != 40 {
		t.Errorf("the size is lost: %+v", m.Spec)
	}
	both := got["both"].Spec
	if both.Resources.Memory.Size != "8Gi" || both.Memory != 6442450944 || both.Disks[0].Size != "50Gi" || len(both.Networks) != 1 || both.Network == nil {
		t.Errorf("fields of both kinds are lost: %+v", both)
	}
	for name, m := range got {
		t.Run(name, func(t *testing.T) { takesOver(t, upgraded, &m) })
	}
}

// takesOver does to a stored Machine what the operator does, and the user.
func takesOver(t *testing.T, upgraded client.Client, m *v1alpha1.Machine) {
	t.Helper()
	before := m.DeepCopy()
	m.Finalizers = append(m.Finalizers, v1alpha1.Finalizer)
	if err := upgraded.Patch(t.Context(), m, client.MergeFrom(before)); err != nil {
		t.Fatalf("no finalizer: %v", err)
	}
	m.Status = v1alpha1.MachineStatus{
		Phase: v1alpha1.PhaseFailed,
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.InvalidSpec, Message: "a", LastTransitionTime: metav1.Now(),
		}},
	}
	want := m.Status.DeepCopy()
	if err := upgraded.Status().Update(t.Context(), m); err != nil {
		t.Fatalf("no status: %v", err)
	}
	if m.Status.Phase != want.Phase || len(m.Status.Conditions) != 1 || m.Status.FailureReason != "" {
		t.Errorf("the status is %+v", m.Status)
	}
	before = m.DeepCopy()
	m.Spec.Memory = 1 << 30
	if err := upgraded.Patch(t.Context(), m, client.MergeFrom(before)); err != nil {
		t.Fatalf("the user cannot change another field: %v", err)
	}
	before = m.DeepCopy()
	m.Finalizers = nil
	if err := upgraded.Patch(t.Context(), m, client.MergeFrom(before)); err != nil {
		t.Fatalf("the finalizers stay: %v", err)
	}
}

func readOldNetworks(t *testing.T, upgraded client.Client) {
	var got v1alpha1.NetworkConfiguration
	if err := upgraded.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "running"}, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Status.NetworkInterfaces) != 1 || got.Status.NetworkInterfaces[0].IPv4Addresses[0] != "192.0.2.10" {
		t.Errorf("the addresses are lost: %+v", got.Status)
	}
	want := got.Spec.DeepCopy()
	if err := upgraded.Update(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*want, got.Spec); diff != "" {
		t.Error(diff)
	}
}

func readOldClasses(t *testing.T, upgraded client.Client) {
	var list v1alpha1.MachineClassList
	if err := upgraded.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Spec.Memory.Quantity != "17179869184" {
		t.Fatalf("the memory is lost: %+v", list.Items)
	}
	if parsed, err := list.Items[0].Spec.Memory.Quantity.Parse(); err != nil || parsed.Value() != 16<<30 {
		t.Errorf("the memory is %v: %v", parsed, err)
	}
}

// upgrade starts its own API server, stores testdata/old.yaml there, and replaces the CRDs.
func upgrade(t *testing.T) client.Client {
	t.Helper()
	environment := &envtest.Environment{}
	config, err := environment.Start()
	t.Cleanup(func() { _ = environment.Stop() })
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	var old []*apiextensionsv1.CustomResourceDefinition
	for _, name := range []string{machines, networks, classes} {
		definition := crd.Read(t, name)
		definition.Spec.Versions[0].Schema.OpenAPIV3Schema = anything()
		definition.Spec.Versions[0].AdditionalPrinterColumns = nil
		old = append(old, definition)
	}
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: old}); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	store(t, c)
	for _, name := range []string{machines, networks, classes} {
		wanted := crd.Read(t, name)
		var stored apiextensionsv1.CustomResourceDefinition
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(wanted), &stored); err != nil {
			t.Fatal(err)
		}
		stored.Spec = wanted.Spec
		if err := c.Update(t.Context(), &stored); err != nil {
			t.Fatal(err)
		}
	}
	awaitRules(t, c)
	return c
}

// anything is a schema that allows everything.
func anything() *apiextensionsv1.JSONSchemaProps {
	all := true
	open := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &all}
	return &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": open, "status": open}}
}

func store(t *testing.T, c client.Client) {
	t.Helper()
	content, err := os.ReadFile("testdata/old.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		want := &unstructured.Unstructured{Object: crd.Parse(t, document)}
		object := want.DeepCopy()
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		object.Object["status"] = want.Object["status"]
		if object.Object["status"] == nil {
			continue
		}
		if err := c.Status().Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitRules returns when the API server holds all three kinds to their new CRDs.
func awaitRules(t *testing.T, c client.Client) {
	t.Helper()
	strict := client.WithFieldValidation(c, "Strict")
	for _, kind := range []string{machine, network, class} {
		bad := crd.Load(t, kind, "spec: {misspelt: true}")
		if kind != class {
			bad.SetNamespace("default")
		}
		bad.SetName("misspelt")
		deadline := time.Now().Add(time.Minute)
		for strict.Create(t.Context(), bad.DeepCopy(), client.DryRunAll) == nil {
			if time.Now().After(deadline) {
				t.Fatalf("the new CRD of %s does not take effect", kind)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}
