package cluster

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// TestPassThatTookTooLongIsToldOf: although its time is over, the status reports what hangs. A pass that the operator's
// shutdown interrupts reports nothing.
func TestPassThatTookTooLongIsToldOf(t *testing.T) {
	over, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		ctx  context.Context
		told bool
	}{
		"in time":                {t.Context(), true},
		"its time is over":       {over, true},
		"the operator has ended": {interrupted, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := simple().snapshot(t, world{})
			management := fake.NewClientBuilder().WithScheme(scheme).WithObjects(s.Config).WithStatusSubresource(s.Config).WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(
					ctx context.Context, c client.Client, subresource string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption,
				) error {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					return c.SubResource(subresource).Patch(ctx, o, p, options...)
				},
			}).Build()
			read := &v1alpha1.KVMConfig{}
			if err := management.Get(t.Context(), client.ObjectKeyFromObject(s.Config), read); err != nil {
				t.Fatal(err)
			}
			r := &Reconciler{Client: management, Clock: testingclock.NewFakePassiveClock(now), Events: events.NewFakeRecorder(100), engine: apply.New(management, management, nil)}
			err := r.Store(test.ctx, read, s, results(isDone, isDone, isWaitingOn))
			if getErr := management.Get(t.Context(), client.ObjectKeyFromObject(s.Config), read); getErr != nil {
				t.Fatal(getErr)
			}
			if told := len(read.Status.Conditions) > 0; told != test.told || (err == nil) != test.told {
				t.Errorf("it is reported: %t (%v), want %t", told, err, test.told)
			}
		})
	}
}
