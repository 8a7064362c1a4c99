package smolvm_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/service"
)

// TestARuntimeThatIsAwayComesBack: nothing is believed of a node that does not answer, nothing is made elsewhere, and a
// deletion waits, unless the user orders otherwise.
func TestARuntimeThatIsAwayComesBack(t *testing.T) {
	together(t)
	n := nodesOf(t, "a", "b")[0]
	pin := func(s *v1alpha1.SmolVMSpec) { s.NodeName = n.name }
	vm, deleted, forced := vmOf(t, "vm", pin), vmOf(t, "deleted", pin), vmOf(t, "forced", pin)
	for _, each := range []*v1alpha1.SmolVM{vm, deleted, forced} {
		phaseIs(t, each, v1alpha1.PhaseRunning)
	}
	// While it answers, the annotation has no effect but the usual one.
	change(t, forced, func(vm *v1alpha1.SmolVM) { vm.Annotations = map[string]string{v1alpha1.AnnotationForceDelete: "true"} })
	is(t, forced, "Reconciled=True/Reconciled")

	n.close()
	phaseIs(t, vm, v1alpha1.PhaseUnknown)
	is(t, vm, "Ready=False/RuntimeUnavailable")
	is(t, vm, "GuestReady=Unknown/GuestReadinessUnavailable")
	if message := is(t, vm, "Reconciled=False/RuntimeUnavailable"); !strings.Contains(message, n.name) {
		t.Errorf("the message is %s", message)
	}
	theLab.Delete(t, deleted)
	is(t, deleted, "DeletionBlocked=True/RuntimeUnavailable")
	is(t, deleted, "Reconciled=False/DeletionBlocked")
	if phase := current(t, deleted).Status.Phase; phase != v1alpha1.PhaseDeleting {
		t.Errorf("the phase is %s", phase)
	}
	theLab.Delete(t, forced)
	gone(t, forced)
	if _, there := n.has(machineOf(forced)); !there {
		t.Error("the machine of a node that does not answer is gone")
	}

	n.served = n.serve(t, n.port)
	n.report(t, nil) // with another certificate
	phaseIs(t, vm, v1alpha1.PhaseRunning)
	gone(t, deleted)
	if n.count("create", machineOf(vm)) != 1 || n.count("start", machineOf(vm)) != 1 {
		t.Errorf("the machine was made or started again: %v", n.did)
	}
}

// TestWhatIsLostIsNotMadeAgain without an order, whether the machine is gone or the node is another one.
func TestWhatIsLostIsNotMadeAgain(t *testing.T) {
	together(t)
	n := nodesOf(t, "a")[0]
	missing := vmOf(t, "missing", nil)
	phaseIs(t, missing, v1alpha1.PhaseRunning)
	n.set(func(f *fakeRuntime) { delete(f.machines, machineOf(missing)) })
	is(t, missing, "LocalStateLost=True/MachineMissing")
	is(t, missing, "Reconciled=False/MachineMissing")
	change(t, missing, func(vm *v1alpha1.SmolVM) { vm.Annotations = map[string]string{v1alpha1.AnnotationRecreate: "true"} })
	phaseIs(t, missing, v1alpha1.PhaseRunning)
	is(t, missing, "LocalStateLost=False/MachineObserved")
	if n.count("create", machineOf(missing)) != 2 {
		t.Errorf("done: %v", n.did)
	}
	lab.Eventually(t, patience, func() error {
		if _, there := current(t, missing).Annotations[v1alpha1.AnnotationRecreate]; there {
			return errors.New("the annotation also holds the next time")
		}
		return nil
	})

	replaced, moved := vmOf(t, "replaced", nil), vmOf(t, "moved", nil)
	phaseIs(t, replaced, v1alpha1.PhaseRunning)
	phaseIs(t, moved, v1alpha1.PhaseRunning)
	n.set(func(f *fakeRuntime) { delete(f.machines, machineOf(replaced)) })
	former := n.uid
	n.uid = "another"
	n.report(t, nil)
	is(t, replaced, "LocalStateLost=True/NodeReplaced")
	if uid := current(t, replaced).Status.NodeUID; uid != former {
		t.Errorf("the proof that the node was replaced is lost: %s", uid)
	}
	// The disks of the other came along.
	lab.Eventually(t, patience, func() error {
		if uid := current(t, moved).Status.NodeUID; uid != "another" {
			return fmt.Errorf("the UID is %s", uid)
		}
		return nil
	})
	is(t, moved, "Reconciled=True/Reconciled")
}

// TestFailuresAreToldAndHeal: the words, the status and the code of the runtime are in the message.
func TestFailuresAreToldAndHeal(t *testing.T) {
	together(t)
	n := nodesOf(t, "a")[0]
	for name, test := range map[string]struct {
		operation string
		err       error
		want      string
		message   string
	}{
		"port":    {"start", api.Errorf(api.CodePortInUse, "port 8080 is taken"), v1alpha1.ReasonPortConflict, "smolvm API returned HTTP 409 PORT_IN_USE: port 8080 is taken"},
		"image":   {"start", api.Errorf(api.CodeImagePullFailed, "registry says no"), v1alpha1.ReasonImagePullFailed, "smolvm API returned HTTP 502 IMAGE_PULL_FAILED: registry says no"},
		"disk":    {"create", api.Errorf(api.CodeDiskFull, "no room"), v1alpha1.ReasonDiskFull, "smolvm API returned HTTP 507 DISK_FULL: no room"},
		"request": {"create", api.Errorf(api.CodeBadRequest, "no"), v1alpha1.ReasonInvalidRequest, "smolvm API returned HTTP 400 BAD_REQUEST: no"},
		"broken":  {"start", api.Errorf(api.CodeInternal, "oops"), v1alpha1.ReasonRuntimeUnavailable, "smolvm API returned HTTP 500 INTERNAL_ERROR: oops"},
	} {
		n.set(func(f *fakeRuntime) { f.fail = map[string]error{test.operation: test.err} })
		vm := vmOf(t, name, nil)
		if message := is(t, vm, "Reconciled=False/"+test.want); message != test.message {
			t.Errorf("%s: the message is %s, want %s", name, message, test.message)
		}
		is(t, vm, "Ready=False/"+test.want)
		n.set(func(f *fakeRuntime) { f.fail = map[string]error{} })
		phaseIs(t, vm, v1alpha1.PhaseRunning)
		is(t, vm, "Reconciled=True/Reconciled")
	}
}

// TestAMachineWaitsForRoom, for a port, and for a node that suits.
func TestAMachineWaitsForRoom(t *testing.T) {
	together(t)
	nodesOf(t, "a")
	port := func(s *v1alpha1.SmolVMSpec) {
		s.Resources.MemoryMiB, s.Network.Ports = 256, []v1alpha1.Port{{HostPort: 9000, GuestPort: 80}}
	}
	large := vmOf(t, "large", func(s *v1alpha1.SmolVMSpec) { s.Resources.MemoryMiB = 3500 })
	phaseIs(t, large, v1alpha1.PhaseRunning)
	first := vmOf(t, "first", port)
	phaseIs(t, first, v1alpha1.PhaseRunning)
	second, third := vmOf(t, "second", port), vmOf(t, "third", func(s *v1alpha1.SmolVMSpec) { s.Resources.MemoryMiB = 700 })
	if message := is(t, second, "Scheduled=False/NoEligibleNodes"); !strings.Contains(message, "hostPort 9000 conflicts with default/"+first.Name) {
		t.Errorf("the message is %s", message)
	}
	if message := is(t, third, "Scheduled=False/NoEligibleNodes"); !strings.Contains(message, "insufficient memory: requested 700MiB used 3756MiB allocatable 4096MiB") {
		t.Errorf("the message is %s", message)
	}
	is(t, third, "Ready=False/AwaitingNodeAssignment")
	phaseIs(t, third, v1alpha1.PhasePending)
	theLab.Delete(t, first)
	phaseIs(t, second, v1alpha1.PhaseRunning)
	change(t, large, func(vm *v1alpha1.SmolVM) { vm.Spec.Storage.StorageGiB = 500 })
	is(t, large, "Reconciled=False/InsufficientResources")
	theLab.Delete(t, large)
	phaseIs(t, third, v1alpha1.PhaseRunning)
	pinned := vmOf(t, "pinned", func(s *v1alpha1.SmolVMSpec) { s.NodeName = "nowhere" })
	if message := is(t, pinned, "Scheduled=False/NoEligibleNodes"); message != "pinned node nowhere has no SmolVMNode runtime status" {
		t.Errorf("the message is %s", message)
	}
}

// TestOnlyTheRuntimeOfTheNodeIsTold the token, and it has to accept it.
func TestOnlyTheRuntimeOfTheNodeIsTold(t *testing.T) {
	together(t)
	n := nodesOf(t, "a")[0]
	vm := vmOf(t, "vm", nil)
	phaseIs(t, vm, v1alpha1.PhaseRunning)

	n.close()
	impostor := newFakeRuntime()
	there := impostor.serve(t, n.port)
	if message := is(t, vm, "Reconciled=False/CertificateMismatch"); !strings.Contains(message, "nothing was sent to it") {
		t.Errorf("the message is %s", message)
	}
	if tokens := there.tokens(); len(tokens) > 0 {
		t.Errorf("the impostor was sent %v", tokens)
	}
	there.close()
	n.served = n.serve(t, n.port)
	n.report(t, nil)
	phaseIs(t, vm, v1alpha1.PhaseRunning)

	n.set(func(f *fakeRuntime) { f.token = "another" })
	n.close()
	n.served = n.serve(t, n.port)
	n.report(t, nil)
	if message := is(t, vm, "Reconciled=False/Unauthorized"); !strings.Contains(message, "401") {
		t.Errorf("the message is %s", message)
	}
	n.set(func(f *fakeRuntime) { f.token = token })
	phaseIs(t, vm, v1alpha1.PhaseRunning)
	is(t, vm, "Reconciled=True/Reconciled")
}

// TestAnEndpointThatSendsElsewhereIsNotFollowed: a redirect is no answer of a runtime.
func TestAnEndpointThatSendsElsewhereIsNotFollowed(t *testing.T) {
	together(t)
	elsewhere := newFakeRuntime()
	there := elsewhere.serve(t, 0)
	n := nodesOf(t, "a")[0]
	n.close()
	pair, text := newCertificate(t, n.name)
	n.served = serveHTTP(t, pair, text, http.RedirectHandler(fmt.Sprintf("https://127.0.0.1:%d/", there.port), http.StatusTemporaryRedirect))
	n.report(t, nil)
	vm := vmOf(t, "vm", nil)
	is(t, vm, "Reconciled=False/CertificateMismatch")
	if tokens := there.tokens(); len(tokens) > 0 {
		t.Errorf("elsewhere got %v", tokens)
	}
}

// TestANodeThatHangsCostsOthersNothing: its machines say so, and those of twenty others start as if it were not there.
func TestANodeThatHangsCostsOthersNothing(t *testing.T) {
	together(t)
	var names []string
	for i := range 21 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	all := nodesOf(t, names...)
	hung := make(chan struct{})
	all[0].set(func(f *fakeRuntime) { f.hung = hung })
	all[0].close()
	all[0].served = all[0].serve(t, all[0].port)
	all[0].report(t, nil)
	var stuck []*v1alpha1.SmolVM
	for i := range 20 { // more than there are workers
		stuck = append(stuck, vmOf(t, fmt.Sprintf("stuck%02d", i), func(s *v1alpha1.SmolVMSpec) {
			s.NodeName, s.Resources.MemoryMiB, s.Storage = all[0].name, 64, v1alpha1.Storage{StorageGiB: 1, OverlayGiB: 1}
			s.Network.Ports = nil
		}))
	}
	began := time.Now()
	var well []*v1alpha1.SmolVM
	for i, n := range all[1:] {
		well = append(well, vmOf(t, fmt.Sprintf("well%02d", i), func(s *v1alpha1.SmolVMSpec) { s.NodeName = n.name }))
	}
	for _, vm := range well {
		phaseIs(t, vm, v1alpha1.PhaseRunning)
	}
	t.Logf("20 machines beside a node that hangs run after %s", time.Since(began).Round(time.Millisecond))
	is(t, stuck[0], "Reconciled=False/Timeout")
	all[0].set(func(f *fakeRuntime) { f.hung = nil })
	close(hung)
	var running int
	lab.Eventually(t, patience, func() error {
		running = 0
		for _, vm := range stuck {
			if current(t, vm).Status.Phase == v1alpha1.PhaseRunning {
				running++
			}
		}
		if running < 8 { // as many as the node has processors
			return fmt.Errorf("%d of the node run", running)
		}
		return nil
	})
}

// TestALongStartBlocksNothing: the start continues beside the passes, and a SmolVM that is deleted or halted does not
// wait for it.
func TestALongStartBlocksNothing(t *testing.T) {
	together(t)
	n := nodesOf(t, "a")[0]
	n.set(func(f *fakeRuntime) { f.slow["start"] = make(chan struct{}) })
	slow, deleted, halted := vmOf(t, "slow", nil), vmOf(t, "deleted", nil), vmOf(t, "halted", nil)
	is(t, halted, "Reconciled=False/StartPending")
	change(t, halted, func(vm *v1alpha1.SmolVM) { vm.Spec.Running = false })
	phaseIs(t, halted, v1alpha1.PhaseCreated)
	is(t, halted, "Reconciled=True/Reconciled")
	is(t, slow, "Reconciled=False/StartPending")
	is(t, slow, "GuestReady=False/Booting")
	is(t, deleted, "Reconciled=False/StartPending")
	theLab.Delete(t, deleted)
	gone(t, deleted)
	if n.count("start", machineOf(deleted)) != 0 {
		t.Errorf("done: %v", n.did)
	}
	n.set(func(f *fakeRuntime) { close(f.slow["start"]); delete(f.slow, "start") })
	phaseIs(t, slow, v1alpha1.PhaseRunning)
	if n.count("start", machineOf(slow)) != 1 || n.count("start", machineOf(halted)) != 0 {
		t.Errorf("done: %v", n.did)
	}
}

// TestAMachineOfAnotherIsLeftAlone.
func TestAMachineOfAnotherIsLeftAlone(t *testing.T) {
	together(t)
	n := nodesOf(t, "a")[0]
	vm := vmOf(t, "vm", func(s *v1alpha1.SmolVMSpec) { s.Running = false })
	phaseIs(t, vm, v1alpha1.PhaseCreated)
	n.change(machineOf(vm), func(m *api.Machine) { m.Owner, m.State = &api.Owner{UID: "another"}, api.StateRunning })
	is(t, vm, "Reconciled=False/MachineNotOwned")
	theLab.Delete(t, vm)
	gone(t, vm)
	if m, there := n.has(machineOf(vm)); !there || m.State != api.StateRunning {
		t.Error("it was touched")
	}
}

// TestATokenIsReadAgain when its file changes, without a restart.
func TestATokenIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	operator := theLab.Run(t, withSmolVMs, func(c *service.Config) { c.SmolVMs.TokenFile = file })
	n := nodesOf(t, "a")[0]
	vm := vmOf(t, "vm", nil)
	is(t, vm, "Reconciled=False/Unauthorized")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	phaseIs(t, vm, v1alpha1.PhaseRunning)
	theLab.Delete(t, vm)
	gone(t, vm)
	operator.Stop()
	if tokens := n.tokens(); !slices.Contains(tokens, "Bearer old") || tokens[len(tokens)-1] != "Bearer "+token {
		t.Error(errors.New("the tokens differ"))
	}
}

// TestAnswersThatAreLostDoNothingTwice: what the runtime has done without telling so ends as if it had.
func TestAnswersThatAreLostDoNothingTwice(t *testing.T) {
	together(t)
	n := nodesOf(t, "a")[0]
	n.set(func(f *fakeRuntime) {
		f.lose = map[string]int{"POST /machines": 1, "POST /start": 1, "POST /stop": 1, "POST /resize": 1}
	})
	vm := vmOf(t, "vm", nil)
	phaseIs(t, vm, v1alpha1.PhaseRunning)
	change(t, vm, func(vm *v1alpha1.SmolVM) { vm.Spec.Running, vm.Spec.Storage.StorageGiB = false, 30 })
	lab.Eventually(t, patience, func() error { return grown(t, vm) })
	is(t, vm, "Reconciled=True/Reconciled")
	n.set(func(f *fakeRuntime) {
		f.lose["DELETE "+machineOf(vm)] = 1
		for which, left := range f.lose {
			if left > 0 && which != "DELETE "+machineOf(vm) {
				t.Errorf("%d answers to %s were not lost", left, which)
			}
		}
	})
	theLab.Delete(t, vm)
	gone(t, vm)
	if machines, _ := n.List(t.Context()); len(machines) > 0 {
		t.Errorf("there are %v", machines)
	}
}

// TestAnAuthorityMaySignForRuntimes: then the certificate that a SmolVMNode shows does not count.
func TestAnAuthorityMaySignForRuntimes(t *testing.T) {
	n := nodesOf(t, "a")[0]
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte(n.certificate), 0o600); err != nil {
		t.Fatal(err)
	}
	n.report(t, func(s *v1alpha1.SmolVMNodeStatus) { s.Endpoint.Certificate = "" })
	operator := theLab.Run(t, withSmolVMs, func(c *service.Config) { c.SmolVMs.CAFile = file })
	vm := vmOf(t, "vm", nil)
	phaseIs(t, vm, v1alpha1.PhaseRunning)
	n.close()
	n.served = n.serve(t, n.port)
	is(t, vm, "Reconciled=False/CertificateMismatch")
	if tokens := n.tokens(); len(tokens) > 0 {
		t.Errorf("the one that no authority has signed was sent %v", tokens)
	}
	operator.Stop()
	remove(vm)
}
