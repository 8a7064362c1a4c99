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
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/undecodable"
)

// TestOfWhatCannotBeDecodedNothingIsMade: it looks as if it had no nodes, and nothing may be made or deleted for that.
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
			// Whatever is asked for besides the object itself is a kind that this client does not know, or a write.
			write := func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				t.Error("it is patched")
				return nil
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(config).WithInterceptorFuncs(interceptor.Funcs{Patch: write}).Build()
			r := &Reconciler{Client: c, Live: c}
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(config)})
			if err != nil || result != (reconcile.Result{}) {
				t.Errorf("result %v, err %v", result, err)
			}
		})
	}
}
