// Package guestshutdown is the handler of guests that shut themselves down: it declares the machine stopped, or starts
// it again in a new pod.
package guestshutdown

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// Actor acts on a machine whose guest has shut down.
type Actor interface {
	// Stop sets spec.vm.state to Stopped, if the object has not changed since it was read, and the pod still exists.
	Stop(ctx context.Context, vm *v1.VirtualMachine, pod *corev1.Pod) error
	// DeletePod deletes the pod of a machine.
	DeletePod(ctx context.Context, vm *v1.VirtualMachine, pod *corev1.Pod) error
}

// New returns the handler.
func New(a Actor) chain.Handler[*virtualmachine.State] { return handler{a} }

type handler struct{ actor Actor }

// Name is the handler's name.
func (handler) Name() string { return "guestshutdown" }

// EnsureCreated stops the machine while its pod still exists, or replaces the pod.
func (h handler) EnsureCreated(ctx context.Context, s *virtualmachine.State) (chain.Outcome, error) {
	switch s.AfterShutdown() {
	case virtualmachine.NextStop:
		const message = "the guest shut itself down, and spec.guestShutdownStops is set: spec.vm.state is set to Stopped"
		return chain.Wait(virtualmachine.ReasonGuestDown, message, 0), h.actor.Stop(ctx, s.VM, s.Pod)
	case virtualmachine.NextRestart:
		message := fmt.Sprintf("the guest shut itself down: pod %s is replaced", s.Pod.Name)
		return chain.Wait(virtualmachine.ReasonGuestDown, message, 0), h.actor.DeletePod(ctx, s.VM, s.Pod)
	}
	return chain.Done(), nil
}

// EnsureDeleted does nothing.
func (handler) EnsureDeleted(context.Context, *virtualmachine.State) (chain.Outcome, error) {
	return chain.Done(), nil
}
