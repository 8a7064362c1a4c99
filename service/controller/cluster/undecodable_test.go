package cluster

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/undecodable"
)

// TestOfWhatCannotBeDecodedNothingIsMade: the object seems to have no nodes, and nothing may be created or deleted
// because of that.
func TestOfWhatCannotBeDecodedNothingIsMade(t *testing.T) {
	now := metav1.Now()
	for name, metadata := range map[string]metav1.ObjectMeta{
		"a new one":                 {},
		"one that has its cluster":  {Finalizers: []string{key.FinalizerCluster}},
		"one that is being deleted": {Finalizers: []string{key.FinalizerCluster}, DeletionTimestamp: &now},
	} {
		t.Run(name, func(t *testing.T) {
			metadata.Namespace, metadata.Name = "default", "ab1cd"
			config := &v1alpha1.KVMConfig{ObjectMeta: metadata}
			undecodable.Mark(config, "spec.a: 1: bad")
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			// Any request other than a read of the object itself is for a kind that this client does not know, or a
			// write.
			write := func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				t.Error("it is patched")
				return nil
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(config).WithInterceptorFuncs(interceptor.Funcs{Patch: write}).Build()
			r := &Reconciler{Client: c, Live: c}
			if err := r.Init(); err != nil {
				t.Fatal(err)
			}
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(config)})
			if err != nil || result != (reconcile.Result{}) {
				t.Errorf("result %v, err %v", result, err)
			}
		})
	}
}
