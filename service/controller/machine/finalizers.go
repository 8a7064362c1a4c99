package machine

import (
	"context"
	"slices"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// finalizers adds this operator's finalizer, and removes that of vitistack's operator with it.
type finalizers struct {
	engine *apply.Engine
	events events.EventRecorder
}

// held returns whether a finalizer of this operator or of vitistack's is on a Machine.
func held(m *v1alpha1.Machine) bool {
	return slices.Contains(m.Finalizers, v1alpha1.Finalizer) || slices.Contains(m.Finalizers, v1alpha1.FormerFinalizer)
}

// AddFinalizers adds finalizers.
func (f finalizers) AddFinalizers(ctx context.Context, object client.Object, names ...string) error {
	return f.engine.AddFinalizers(ctx, object, names...)
}

// RemoveFinalizer removes both finalizers with one request, and tells that everything is gone.
func (f finalizers) RemoveFinalizer(ctx context.Context, object client.Object, name string) error {
	m, ok := object.(*v1alpha1.Machine)
	if !ok || !held(m) {
		return nil
	}
	if err := f.engine.RemoveFinalizers(ctx, m, name, v1alpha1.FormerFinalizer); err != nil {
		return err
	}
	report(f.events, m, vitistack.CleanedUp())
	return nil
}
