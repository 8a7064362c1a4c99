package chart_test

import (
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

// lifeOfAMachine creates a virtual machine, changes its claims, starts it, and lets its guest shut itself down.
func (i installation) lifeOfAMachine(t *testing.T) {
	t.Helper()
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "chart-vm"},
		Spec: v1.VirtualMachineSpec{GuestShutdownStops: true, VM: v1.VM{
			MaximumCPUs: ptr.To[int32](1), MaximumRAM: "1Gi", Firmware: v1.FirmwareUEFI, Networks: []v1.Network{},
		}},
	}
	i.Create(t, vm)
	i.claims(t, vm, 1)
	lab.Change(t, i.Lab, vm, func(vm *v1.VirtualMachine) { vm.Spec.VM.Firmware = v1.FirmwareBIOS })
	i.claims(t, vm, 0)
	lab.Change(t, i.Lab, vm, func(vm *v1.VirtualMachine) { vm.Spec.VM.State = v1.StateRunning })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: vm.Name + "-0"}}
	lab.Eventually(t, lab.Timeout, func() error { return i.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod) })
	lab.Eventually(t, lab.Timeout, func() error {
		if i.Get(t, vm); vm.Spec.VM.State == v1.StateStopped && vm.Status.Phase != "" {
			return nil
		}
		return errors.Join(errors.New("the machine is not declared stopped: "+fmt.Sprint(vm.Status)), i.shutsDown(t, pod))
	})
	i.Delete(t, vm)
}

// shutsDown makes a pod that of a guest that has shut itself down. What plays the kubelet may overwrite it, so it is called
// until the operator has seen it.
func (i installation) shutsDown(t *testing.T, pod *corev1.Pod) error {
	t.Helper()
	if err := i.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	down := pod.DeepCopy()
	down.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "GuestShutDown: the guest shut itself down\n"}},
	}}
	return client.IgnoreNotFound(i.Client.Status().Patch(t.Context(), down, client.MergeFrom(pod)))
}

// claims waits until the StatefulSet of a stopped machine has as many claim templates.
func (i installation) claims(t *testing.T, vm *v1.VirtualMachine, want int) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		set := &appsv1.StatefulSet{}
		if err := i.Client.Get(t.Context(), client.ObjectKeyFromObject(vm), set); err != nil {
			return err
		}
		if got := len(set.Spec.VolumeClaimTemplates); got != want {
			return fmt.Errorf("it has %d claim templates", got)
		}
		return nil
	})
}
