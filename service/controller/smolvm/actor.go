package smolvm

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinespec"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinestep"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/nodes"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/state"
)

// actor has the runtimes of nodes take steps, and reports them.
type actor struct {
	nodes   *nodes.Pool
	events  events.EventRecorder
	secrets pullSecrets
}

// deeds are the reasons of the events of steps, with the words of smolvm-operator.
var deeds = map[machinestep.Action]string{
	machinestep.Create: v1alpha1.ReasonCreating, machinestep.Start: v1alpha1.ReasonStarting, machinestep.Stop: v1alpha1.ReasonStopping,
	machinestep.Resize: v1alpha1.ReasonResizing, machinestep.Delete: v1alpha1.ReasonDeleting,
}

// Do takes the step of a state. Of one that is tried repeatedly, the first attempt is reported.
func (a actor) Do(_ context.Context, s *state.State) state.Progress {
	vm, node, machine := s.VM, s.VM.Status.NodeName, machinespec.Name(s.VM)
	if s.Step.Action == machinestep.Release {
		a.nodes.Drop(node, machine)
		if s.Step.Reason != "" && a.events != nil {
			a.events.Eventf(vm, nil, corev1.EventTypeWarning, s.Step.Reason, string(s.Step.Action), "%s", s.Step.Message)
		}
		return state.Progress{}
	}
	request := nodes.Request{Action: s.Step.Action, Namespace: vm.Namespace, Generation: vm.Generation, Resize: s.Step.Resize}
	if s.Step.Action == machinestep.Create {
		request.Create = machinespec.Request(vm, s.Cluster)
	}
	if s.Step.Action == machinestep.Start {
		request.Credentials = a.secrets.of(vm, s.Runtime.Machine)
	}
	progress, first := a.nodes.Do(node, machine, request)
	if reason := deeds[s.Step.Action]; first && a.events != nil {
		a.events.Eventf(vm, nil, corev1.EventTypeNormal, reason, string(s.Step.Action), "%s smolvm machine %s", reason, machine)
	}
	return progress
}
