package unhealthynodeterminator

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// told is an event: the names of its objects, its type, reason and text.
type told struct{ Regarding, Related, Type, Reason, Action, Note string }

// recorder records events.
type recorder struct {
	events.EventRecorder // only Eventf is called
	all                  []told
}

func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	name := func(o runtime.Object) string { return client.ObjectKeyFromObject(o.(client.Object)).String() }
	text := events.NewFakeRecorder(1)
	text.Eventf(nil, nil, "", "", "", note, args...)
	r.all = append(r.all, told{name(regarding), name(related), kind, reason, action, (<-text.Events)[len("  "):]})
}

// counted returns how many nodes of a role were terminated, by the operator's metrics.
func counted(t *testing.T, role string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "kvm_operator_unhealthy_nodes_terminated_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if label := metric.GetLabel(); len(label) == 1 && label[0].GetName() == "role" && label[0].GetValue() == role {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestARepairIsReported: a pod that is deleted is in the events of the KVMConfig and in the counter of its role. One that
// is not deleted is in neither.
func TestARepairIsReported(t *testing.T) {
	const why = "the Node of worker w1 is not Ready"
	config := &v1alpha1.KVMConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo"}}
	event := told{"default/demo", "ab1cd/worker-w1-x", corev1.EventTypeWarning, "UnhealthyNodeTerminated", "Terminate", "worker-w1-x: " + why}
	for name, test := range map[string]struct {
		deleted bool
		role    string
		count   float64
		want    []told
	}{
		"a worker":                  {true, key.RoleWorker, 1, []told{event}},
		"a master":                  {true, key.RoleMaster, 1, []told{event}},
		"a pod that is not deleted": {false, key.RoleWorker, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ab1cd", Name: "worker-w1-x", UID: "u", Labels: map[string]string{key.LabelApp: test.role}}}
			refuse := interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod.Name, nil)
			}}
			b := fake.NewClientBuilder().WithObjects(pod.DeepCopy())
			if !test.deleted {
				b = b.WithInterceptorFuncs(refuse)
			}
			c := b.Build()
			got, before := &recorder{}, counted(t, test.role)
			err := terminator{apply.New(c, c, clock.RealClock{}), got}.Terminate(t.Context(), config, pod, why)
			if (err == nil) != test.deleted {
				t.Errorf("error %v", err)
			}
			if count := counted(t, test.role) - before; count != test.count {
				t.Errorf("%v pods were counted, want %v", count, test.count)
			}
			if diff := cmp.Diff(test.want, got.all); diff != "" {
				t.Errorf("other events (-want +got):\n%s", diff)
			}
		})
	}
}
