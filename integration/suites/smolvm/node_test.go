package smolvm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinespec"
)

// node is a node with a played runtime.
type node struct {
	*fakeRuntime
	*served

	name string
	uid  types.UID
}

// nodesOf makes nodes for one test alone: its SmolVMs select them by its label.
func nodesOf(t testing.TB, names ...string) []*node {
	t.Helper()
	var all []*node
	for _, name := range names {
		n := &node{fakeRuntime: newFakeRuntime(), name: label(t) + "-" + name, uid: types.UID("uid-of-" + name)}
		n.identity = api.Identity{NodeName: n.name, NodeUID: string(n.uid)}
		n.served = n.serve(t, 0)
		addHost(t, n.name)
		theLab.Create(t, &v1alpha1.SmolVMNode{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{"test": label(t)}}})
		t.Cleanup(func() {
			_ = theLab.Client.Delete(context.Background(), &v1alpha1.SmolVMNode{ObjectMeta: metav1.ObjectMeta{Name: n.name}})
		})
		n.report(t, nil)
		all = append(all, n)
	}
	return all
}

// label returns the test's name as a label.
func label(t testing.TB) string {
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-", ",", "", ":", "").Replace(strings.TrimPrefix(t.Name(), "Test")))
	return strings.Trim(name[:min(len(name), 40)], "-")
}

// addHost makes the Node, as a kubelet would.
func addHost(t testing.TB, name string) {
	t.Helper()
	host := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": label(t)}}}
	theLab.Create(t, host)
	t.Cleanup(func() { _ = theLab.Client.Delete(context.Background(), host) })
	lab.Change(t, theLab, host, func(h *corev1.Node) { h.Spec.Taints = nil })
	host.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := theLab.Client.Status().Update(context.Background(), host); err != nil {
		t.Fatal(err)
	}
}

// report reports the runtime as its agent does; by changes the report.
func (n *node) report(t testing.TB, by func(*v1alpha1.SmolVMNodeStatus)) {
	t.Helper()
	n.set(func(f *fakeRuntime) { f.identity.NodeUID = string(n.uid) })
	ctx, now := context.Background(), metav1.Now()
	object := &v1alpha1.SmolVMNode{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	lab.Eventually(t, 5*time.Second, func() error {
		if err := theLab.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		object.Status = v1alpha1.SmolVMNodeStatus{
			NodeUID: n.uid, ProtocolVersion: v1alpha1.ProtocolVersion, Backend: "fake", Accelerator: v1alpha1.AcceleratorTCG, HeartbeatTime: &now,
			Endpoint:    v1alpha1.Endpoint{PodIP: "127.0.0.1", Port: n.port, Certificate: n.certificate},
			Allocatable: v1alpha1.Allocatable{CPUs: 8, MemoryMiB: 4096, StorageGiB: 400},
		}
		for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionRuntimeReady, v1alpha1.NodeConditionSchedulable} {
			meta.SetStatusCondition(&object.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReported})
		}
		if by != nil {
			by(&object.Status)
		}
		return theLab.Client.Status().Update(ctx, object)
	})
}

// vmOf creates a SmolVM for the nodes of the test.
func vmOf(t testing.TB, name string, by func(*v1alpha1.SmolVMSpec)) *v1alpha1.SmolVM {
	t.Helper()
	vm := &v1alpha1.SmolVM{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: label(t) + "-" + name}}
	vm.Spec = v1alpha1.SmolVMSpec{Running: true, Image: "alpine:latest", NodeSelector: map[string]string{"test": label(t)}}
	if by != nil {
		by(&vm.Spec)
	}
	theLab.Create(t, vm)
	t.Cleanup(func() { remove(vm) })
	return vm
}

// remove deletes a SmolVM, even if its node no longer answers.
func remove(vm *v1alpha1.SmolVM) {
	ctx := context.Background()
	_ = theLab.Client.Delete(ctx, vm)
	_ = theLab.Client.Patch(ctx, vm, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
}

func current(t testing.TB, vm *v1alpha1.SmolVM) *v1alpha1.SmolVM {
	t.Helper()
	now := &v1alpha1.SmolVM{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: vm.Name}}
	theLab.Get(t, now)
	return now
}

func machineOf(vm *v1alpha1.SmolVM) string { return machinespec.Name(vm) }

// patience bounds what a test waits for.
const patience = time.Minute

// phaseIs waits for a phase that the controller has written for the spec as it is.
func phaseIs(t testing.TB, vm *v1alpha1.SmolVM, phase v1alpha1.Phase) {
	t.Helper()
	lab.Eventually(t, patience, func() error { return hasPhase(t, vm, phase) })
}

func hasPhase(t testing.TB, vm *v1alpha1.SmolVM, phase v1alpha1.Phase) error {
	now := current(t, vm)
	if now.Status.Phase != phase || now.Status.ObservedGeneration != now.Generation {
		return fmt.Errorf("phase %q of generation %d, want %q of %d; %s", now.Status.Phase, now.Status.ObservedGeneration, phase, now.Generation, conditions(now))
	}
	return nil
}

// is waits for a condition, written as Type=Status/Reason, and returns its message.
func is(t testing.TB, vm *v1alpha1.SmolVM, want string) string {
	t.Helper()
	message := ""
	lab.Eventually(t, patience, func() error {
		now := current(t, vm)
		for _, c := range now.Status.Conditions {
			if fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason) == want {
				message = c.Message
				return nil
			}
		}
		return fmt.Errorf("no condition %s: %s", want, conditions(now))
	})
	return message
}

func conditions(vm *v1alpha1.SmolVM) string {
	var all []string
	for _, c := range vm.Status.Conditions {
		all = append(all, fmt.Sprintf("%s=%s/%s (%s)", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(all, ", ")
}

func change(t testing.TB, vm *v1alpha1.SmolVM, by func(*v1alpha1.SmolVM)) {
	t.Helper()
	now := current(t, vm)
	lab.Change(t, theLab, now, by)
}

func gone(t testing.TB, vm *v1alpha1.SmolVM) {
	t.Helper()
	lab.Eventually(t, patience, func() error {
		if theLab.Exists(t, vm.DeepCopy()) {
			return errors.New("it is still there")
		}
		return nil
	})
}
