package machines_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/definitions"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/service/machines"
)

// interval is that of the operator under test.
const interval = 300 * time.Millisecond

// world is a namespace and an operator.
type world struct {
	*testing.T
	namespace string
	service   *machines.Service

	mu   sync.Mutex
	sent []string
}

type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// newWorld runs an operator until the test ends.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "world-"}}
	w.do(direct.Create(t.Context(), namespace))
	w.namespace = namespace.Name
	counted := rest.CopyConfig(config)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			// A cache lists and watches of its own accord; an event is of no object under test.
			if r.URL.Query().Get("watch") == "" && !strings.HasSuffix(r.URL.Path, "/events") && r.URL.Query().Get("limit") == "" {
				w.mu.Lock()
				w.sent = append(w.sent, r.Method+" "+r.URL.Path)
				w.mu.Unlock()
			}
			return next.RoundTrip(r)
		})
	})
	ctx, stop := context.WithCancel(context.Background())
	service, err := machines.New(ctx, machines.Config{
		REST: counted, Interval: interval,
		Settings: vitistack.Settings{ManagedBy: "kubevirt-operator", MACSet: 0x12, CNIVersion: "1.0.0"},
	})
	w.do(err)
	w.service = service
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the operator ended with %v", err)
		}
	})
	w.until("the operator is ready", func() error {
		if ready, why := service.Ready(); !ready {
			return errors.New(why)
		}
		return nil
	})
	return w
}

func (w *world) do(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// until waits for a condition.
func (w *world) until(what string, condition func() error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
	defer cancel()
	if err := poll.Until(ctx, 10*time.Millisecond, nil, func(context.Context) error { return condition() }); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// requests returns the requests since the last call.
func (w *world) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.sent
	w.sent = nil
	return sent
}

// kubeVirtDefinitions are printed once, which takes seconds.
var kubeVirtDefinitions = sync.OnceValues(func() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return definitions.KubeVirt(context.Background(), definitions.VirtualMachines, definitions.VirtualMachineInstances)
})

// kubeVirt installs the definitions of KubeVirt until the test ends.
func (w *world) kubeVirt() {
	w.Helper()
	all, err := kubeVirtDefinitions()
	w.do(err)
	for _, definition := range definitions.WithoutSchemas(all) {
		w.define(definition)
	}
}

// define creates a definition until the test ends.
func (w *world) define(definition *apiextensionsv1.CustomResourceDefinition) {
	w.Helper()
	w.do(direct.Create(w.Context(), definition.DeepCopy()))
	w.Cleanup(func() {
		if err := undefine(definition.Name); err != nil {
			w.Error(err)
		}
	})
}

// undefine deletes a definition and waits until it is gone.
func undefine(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := client.IgnoreNotFound(direct.Delete(ctx, definition)); err != nil {
		return err
	}
	return poll.Until(ctx, 20*time.Millisecond, nil, func(ctx context.Context) error {
		if err := direct.Get(ctx, client.ObjectKeyFromObject(definition), definition); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s still exists: %w", name, errors.Join(err))
		}
		return nil
	})
}

// machine creates a small Machine.
func (w *world) machine(name string, change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	w.Helper()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: v1alpha1.MachineSpec{Template: "small"}}
	for _, f := range change {
		f(m)
	}
	w.do(direct.Create(w.Context(), m))
	w.Cleanup(func() {
		// What is left is not to concern the operators of other tests.
		ctx := context.Background()
		_ = direct.Patch(ctx, m.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		_ = direct.Delete(ctx, m.DeepCopy())
	})
	return m
}

// named returns the metadata of an object.
func (w *world) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.namespace, Name: name}
}

// get reads an object, whose metadata names it.
func get[T client.Object](w *world, object T) (T, error) {
	return object, direct.Get(w.Context(), client.ObjectKeyFromObject(object), object)
}

// exists waits until an object exists.
func exists[T client.Object](w *world, object T) T {
	w.Helper()
	w.until(fmt.Sprintf("%T %s exists", object, object.GetName()), func() error {
		_, err := get(w, object)
		return err
	})
	return object
}

// gone waits until an object is gone.
func (w *world) gone(object client.Object) {
	w.Helper()
	w.until(fmt.Sprintf("%T %s is gone", object, object.GetName()), func() error {
		if _, err := get(w, object); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", errors.Join(err))
		}
		return nil
	})
}

// says waits until a Machine has a phase and Ready a reason.
func (w *world) says(m *v1alpha1.Machine, phase, reason string) *v1alpha1.Machine {
	w.Helper()
	w.until("Machine "+m.Name, func() error {
		current, err := get(w, m.DeepCopy())
		if err != nil {
			return err
		}
		ready := meta.FindStatusCondition(current.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || current.Status.Phase != phase || ready.Reason != reason {
			return fmt.Errorf("it is %s, want %s with %s: %+v", current.Status.Phase, phase, reason, ready)
		}
		*m = *current
		return nil
	})
	return m
}

// bind plays the part of the volume controller.
func (w *world) bind(claim *corev1.PersistentVolumeClaim) {
	w.Helper()
	exists(w, claim)
	claim.Status.Phase = corev1.ClaimBound
	w.do(direct.Status().Update(w.Context(), claim))
}

// runs plays KubeVirt's part: the guest runs on a node.
func (w *world) runs(name string) (*kubevirtv1.VirtualMachine, *kubevirtv1.VirtualMachineInstance) {
	w.Helper()
	vm := exists(w, &kubevirtv1.VirtualMachine{ObjectMeta: w.named(name)})
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: w.named(name)}
	vmi.Labels = vm.Spec.Template.ObjectMeta.Labels
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirtv1.VirtualMachineGroupVersionKind)}
	vmi.Status.Phase, vmi.Status.NodeName = kubevirtv1.Running, "node-a"
	vmi.Status.Conditions = []kubevirtv1.VirtualMachineInstanceCondition{{Type: kubevirtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}}
	for _, i := range vm.Spec.Template.Spec.Domain.Devices.Interfaces {
		vmi.Status.Interfaces = append(vmi.Status.Interfaces, kubevirtv1.VirtualMachineInstanceNetworkInterface{Name: i.Name, MAC: i.MacAddress, IP: "10.0.0.7", IPs: []string{"10.0.0.7"}})
	}
	w.do(direct.Create(w.Context(), vmi))
	vm.Status.PrintableStatus = kubevirtv1.VirtualMachineStatusRunning
	w.do(direct.Status().Update(w.Context(), vm))
	return vm, vmi
}

// about returns the requests that contain a text.
func about(requests []string, text string) []string {
	return slices.DeleteFunc(slices.Clone(requests), func(r string) bool { return !strings.Contains(r, text) })
}
