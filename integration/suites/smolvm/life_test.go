package smolvm_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

func TestAMachineLives(t *testing.T) {
	together(t)
	n := nodesOf(t, "a")[0]
	vm := vmOf(t, "vm", func(s *v1alpha1.SmolVMSpec) {
		s.Storage.StorageGiB = 5
		s.Network.Ports = []v1alpha1.Port{{HostPort: 18080, GuestPort: 80}}
	})
	phaseIs(t, vm, v1alpha1.PhaseRunning)
	now := current(t, vm)
	if now.Status.NodeName != n.name || now.Status.NodeUID != n.uid || now.Status.MachineName != machineOf(vm) || *now.Status.RuntimePID != 4711 ||
		now.Status.ImageDigest != "sha256:abc" || now.Status.Accelerator != "tcg" || now.Status.StartTime == nil || *now.Status.StorageGiB != 5 || now.Status.Ports[0].HostPort != 18080 {
		t.Errorf("the status is %+v", now.Status)
	}
	for _, want := range []string{"Scheduled=True/Bound", "Ready=True/Observed", "RuntimeReady=True/Observed", "GuestReady=True/AgentAnswers", "Reconciled=True/Reconciled", "LocalStateLost=False/MachineObserved"} {
		is(t, vm, want)
	}
	m, _ := n.has(machineOf(vm))
	if m.Owner == nil || m.Owner.UID != string(vm.UID) || m.Owner.Cluster == "" {
		t.Errorf("the machine's owner is %+v", m.Owner)
	}

	change(t, vm, func(vm *v1alpha1.SmolVM) { vm.Spec.Storage.StorageGiB = 7 })
	is(t, vm, "Reconciled=False/ResizeRequiresStoppedMachine")
	is(t, vm, "Ready=True/ResizePending")
	change(t, vm, func(vm *v1alpha1.SmolVM) { vm.Spec.Running = false })
	phaseIs(t, vm, v1alpha1.PhaseStopped)
	is(t, vm, "GuestReady=False/GuestStopped")
	is(t, vm, "Reconciled=True/Reconciled")
	if m, _ = n.has(machineOf(vm)); m.StorageGB != 7 || *current(t, vm).Status.StorageGiB != 7 {
		t.Errorf("the disk has %d GiB", m.StorageGB)
	}
	change(t, vm, func(vm *v1alpha1.SmolVM) { vm.Spec.Storage.StorageGiB = 6 })
	is(t, vm, "Reconciled=False/InvalidStorageResize")
	change(t, vm, func(vm *v1alpha1.SmolVM) { vm.Spec.Running, vm.Spec.Storage.StorageGiB = true, 7 })
	phaseIs(t, vm, v1alpha1.PhaseRunning)

	// Whatever a person does at the node is undone.
	n.change(machineOf(vm), func(m *api.Machine) { m.State = api.StateStopped })
	lab.Eventually(t, patience, func() error {
		if m, _ := n.has(machineOf(vm)); m.State != api.StateRunning {
			return errState(m.State)
		}
		return nil
	})
	change(t, vm, func(vm *v1alpha1.SmolVM) { vm.Spec.Image, vm.Spec.Args = "debian", []string{"a"} })
	if message := is(t, vm, "Reconciled=False/UnsupportedUpdate"); !strings.Contains(message, `image is immutable after creation; runtime has "alpine:latest" and spec requests "debian"`) {
		t.Errorf("the message is %s", message)
	}
	change(t, vm, func(vm *v1alpha1.SmolVM) { vm.Spec.Image = "alpine:latest" })
	is(t, vm, "Reconciled=False/UnsupportedUpdate") // its digest tells that args differ
	change(t, vm, func(vm *v1alpha1.SmolVM) { vm.Spec.Args = nil })
	is(t, vm, "Reconciled=True/Reconciled")

	theLab.Delete(t, vm)
	gone(t, vm)
	if _, there := n.has(machineOf(vm)); there || n.count("create", machineOf(vm)) != 1 || n.count("delete", machineOf(vm)) != 1 {
		t.Errorf("the machine is there: %t; done: %v", there, n.did)
	}
}

// TestMetricsOfSmolVMs: those of the controller that works are served.
func TestMetricsOfSmolVMs(t *testing.T) {
	together(t)
	nodesOf(t, "a")
	phaseIs(t, vmOf(t, "vm", nil), v1alpha1.PhaseRunning)
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]int{}
	for _, family := range families {
		served[family.GetName()] = len(family.GetMetric())
	}
	for _, name := range []string{
		"kvm_operator_smolvms", "kvm_operator_smolvmnode_heartbeat_age_seconds", "kvm_operator_smolvmnode_ready", "kvm_operator_smolvm_time_to_running_seconds",
		"kvm_operator_smolvm_runtime_request_seconds",
	} {
		if served[name] == 0 {
			t.Errorf("%s is not served", name)
		}
	}
}

type errState api.State

func (e errState) Error() string { return "the machine is " + string(e) }
