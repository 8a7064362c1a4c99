package behaviour_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// TestClusterOfTheOriginal: giantswarm/kvm-operator runs the cluster orig1, and this operator selects its KVMConfig,
// too. No test double plays that operator here, so its objects stay as it left them.
func TestClusterOfTheOriginal(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	objects := original(t)
	for _, object := range objects {
		create(t, object)
	}
	config := makeCluster("orig1").Workers(1).Release("14.1.0", "3.18.7-dev").Obj()
	config.Finalizers = []string{key.FinalizerCluster, key.FinalizerDeleter, key.FinalizerTerminator}
	create(t, config)
	nodes := v1alpha1.KVMConfigStatus{Cluster: &v1alpha1.LegacyClusterStatus{
		Conditions: []v1alpha1.LegacyCondition{{Type: "Created", Status: "True", LastTransitionTime: metav1.Now()}},
		Nodes:      []v1alpha1.LegacyNode{{Name: "master-m1aaa-6c7b9-x2v4k", Version: "3.18.7-dev"}},
	}}
	lab.Eventually(t, lab.Timeout, func() error {
		current := theLab.Current(t, config)
		current.Status.Cluster = nodes.Cluster
		return theLab.Client.Status().Update(ctx, current)
	})
	awaitLegacy(t, config)
	// The operator reports it before and after the first version of the status. After that, nothing changes.
	lab.Change(t, theLab, config, func(c *v1alpha1.KVMConfig) { c.Spec.Cluster.Workers = nil; c.Spec.KVM.Workers = nil })
	awaitLegacy(t, config)

	theLab.Delete(t, config)
	master := &corev1.Pod{}
	lab.Eventually(t, lab.Timeout, func() error {
		var pods corev1.PodList
		if err := theLab.Client.List(ctx, &pods, client.InNamespace("orig1")); err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return errors.New("the original's pod is not there")
		}
		master = &pods.Items[0]
		return nil
	})
	theLab.Delete(t, master)
	awaitLegacy(t, config)
	untouched(t, config, objects, nodes.Cluster)
	lab.Eventually(t, lab.Timeout, func() error {
		if err := theLab.Client.Get(ctx, client.ObjectKeyFromObject(master), master); err != nil {
			return err
		}
		if master.DeletionTimestamp == nil {
			return errors.New("the pod is not being deleted yet")
		}
		return nil
	})
	if !slices.Contains(master.Finalizers, key.FinalizerDrainer) {
		t.Error("the drainer has let a pod of the original go")
	}

	// The original operator deletes machines first, and then the KVMConfig.
	free(t, master)
	for _, object := range slices.Backward(objects) {
		if err := theLab.Client.Delete(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	lab.Eventually(t, lab.Timeout, func() error {
		var pods corev1.PodList
		if err := theLab.Client.List(ctx, &pods, client.InNamespace("orig1")); err != nil {
			return err
		}
		for i := range pods.Items { // the Deployment has created another one since then
			free(t, &pods.Items[i])
		}
		return client.IgnoreNotFound(notYet(theLab.Client.Get(ctx, client.ObjectKey{Name: "orig1"}, &corev1.Namespace{})))
	})
	if current := theLab.Current(t, config); len(current.Finalizers) != 3 {
		t.Errorf("finalizers %v, want the original's three, because it removes them itself", current.Finalizers)
	}
	free(t, config)
	theLab.AwaitGone(t, config)
	for _, request := range theOperator.Requests.Of("orig1") {
		if request.Write() && !strings.Contains(request.Path, "/status") && !strings.Contains(request.Path, "/events") {
			t.Errorf("the operator asked for %v", request)
		}
	}
}

// notYet turns a missing error into an error.
func notYet(err error) error {
	if err == nil {
		return errors.New("it is still there")
	}
	return err
}

func awaitLegacy(t *testing.T, config *v1alpha1.KVMConfig) {
	t.Helper()
	generation := theLab.Current(t, config).Generation
	lab.Eventually(t, lab.Timeout, func() error {
		c := meta.FindStatusCondition(theLab.Current(t, config).Status.Conditions, "Ready")
		if c == nil || c.Reason != "LegacyMachines" || c.ObservedGeneration != generation {
			return errors.New("Ready does not say LegacyMachines of this generation")
		}
		return nil
	})
}

// untouched fails when the operator has changed anything of the cluster except one condition.
func untouched(t *testing.T, config *v1alpha1.KVMConfig, objects []*unstructured.Unstructured, nodes *v1alpha1.LegacyClusterStatus) {
	t.Helper()
	current := theLab.Current(t, config)
	if want := []string{key.FinalizerCluster, key.FinalizerDeleter, key.FinalizerTerminator}; !slices.Equal(current.Finalizers, want) {
		t.Errorf("finalizers %v, want %v", current.Finalizers, want)
	}
	if diff := cmp.Diff(nodes, current.Status.Cluster, cmp.Comparer(func(a, b metav1.Time) bool { return a.Unix() == b.Unix() })); diff != "" {
		t.Errorf("status.cluster is no longer the original's (-want +got):\n%s", diff)
	}
	if n := len(current.Status.Conditions); n != 1 || current.Status.KVM != nil || len(current.Status.Nodes) != 0 || current.Status.Versions != nil {
		t.Errorf("the status has %d conditions and more of this operator, want Ready alone: %+v", n, current.Status)
	}
	for _, object := range objects {
		now := object.DeepCopy()
		if err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(object), now); err != nil {
			t.Errorf("%s %s: %s", object.GetKind(), object.GetName(), err)
			continue
		}
		for _, entry := range now.GetManagedFields() {
			if entry.Manager == key.Operator {
				t.Errorf("the operator has written %s %s", object.GetKind(), object.GetName())
			}
		}
	}
}

// free removes the finalizers, as the original operator does.
func free(t *testing.T, object client.Object) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) || err == nil && len(object.GetFinalizers()) == 0 {
			return nil
		}
		object.SetFinalizers(nil)
		return client.IgnoreNotFound(theLab.Client.Update(context.Background(), object))
	})
}

// original reads the objects of the original operator's cluster.
func original(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile("testdata/original.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}
