package guests_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/integration/harness/bootsector"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/spiceclient"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmrunner"
)

// isBack waits until a machine runs again after a fault, and its guest has started for the nth time.
func (s stage) isBack(t *testing.T, vm *v1.VirtualMachine, nth int) {
	t.Helper()
	begun := time.Now()
	s.says(t, vm, bootsector.Booted(nth))
	s.becomes(t, vm, "back", runs)
	t.Logf("back after %s", time.Since(begun).Round(100*time.Millisecond))
}

// TestFaultRunnerIsKilled: QEMU ends with its runner, and kubelet starts both again, in the same pod.
func TestFaultRunnerIsKilled(t *testing.T) {
	s, vm, seen := faulty(t, "runner-killed")
	pod := s.pod(t, vm)
	runnerOf(t, vm).signal(t, syscall.SIGKILL)
	s.becomes(t, vm, "known to be down", func(s v1.VirtualMachineStatus) bool { return !isReady(s) })
	s.isBack(t, vm, 2)
	if again := s.pod(t, vm); again.UID != pod.UID || again.Status.ContainerStatuses[0].RestartCount != 1 || seen.starts() != 2 {
		t.Errorf("QEMU was started %d times, and the pod is %+v", seen.starts(), again.Status.ContainerStatuses)
	}
}

// TestFaultQEMUIsKilled: the runner ends with a reason that kubelet shows, and kubelet starts both again.
func TestFaultQEMUIsKilled(t *testing.T) {
	s, vm, seen := faulty(t, "qemu-killed")
	qemuOf(t, vm).signal(t, syscall.SIGKILL)
	s.becomes(t, vm, "known to be down", func(s v1.VirtualMachineStatus) bool { return !isReady(s) })
	s.isBack(t, vm, 2)
	container := s.pod(t, vm).Status.ContainerStatuses[0]
	if ended := container.LastTerminationState.Terminated; ended == nil || ended.ExitCode != 21 || !strings.Contains(ended.Message, "QEMUCrashed") || seen.starts() != 2 {
		t.Errorf("QEMU was started %d times, and the container is %+v", seen.starts(), container)
	}
}

// TestFaultQEMUHangs: a machine whose QEMU does not answer is not ready, and says so. It runs on when QEMU does.
func TestFaultQEMUHangs(t *testing.T) {
	isLong(t)
	s, vm, seen := faulty(t, "qemu-hangs")
	qemu := qemuOf(t, vm)
	qemu.signal(t, syscall.SIGSTOP)
	t.Cleanup(func() { _ = syscall.Kill(qemu.id, syscall.SIGCONT) })
	begun := time.Now()
	s.becomes(t, vm, "unhealthy", isUnhealthy)
	t.Logf("unhealthy after %s", time.Since(begun).Round(100*time.Millisecond))
	qemu.signal(t, syscall.SIGCONT)
	s.becomes(t, vm, "healthy", runs)
	if seen.starts() != 1 {
		t.Errorf("QEMU was started %d times", seen.starts())
	}
}

// TestFaultGuestIgnoresThePowerButton: the guest has the time that was declared, and then its power is cut.
func TestFaultGuestIgnoresThePowerButton(t *testing.T) {
	s, vm, _ := faulty(t, "deaf-guest")
	s.tell(t, vm, bootsector.IgnorePowerButton)
	s.set(t, vm, func(vm *v1.VM) { vm.PowerdownTimeout = 8 })
	s.becomes(t, vm, "told", func(s v1.VirtualMachineStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, "ChangesApplied")
	})
	begun := time.Now()
	s.set(t, vm, func(vm *v1.VM) { vm.State = v1.StateStopped })
	s.becomes(t, vm, "shutting down", func(s v1.VirtualMachineStatus) bool { return s.Phase == v1.PhaseStopping })
	s.becomes(t, vm, "stopped", isStopped)
	if took := time.Since(begun); took < 8*time.Second || took > time.Minute {
		t.Errorf("it took %s", took)
	}
}

// TestFaultNoOperatorWhileAGuestShutsDown: a machine whose guest shut itself down is not started again while no
// operator runs that could say whether it should be.
func TestFaultNoOperatorWhileAGuestShutsDown(t *testing.T) {
	isLong(t)
	s := newStage(t, "parked")
	operator := s.operate(t)
	vm := s.newTiny(t, "parked")
	vm.Spec.GuestShutdownStops = true
	s.start(t, vm)
	seen := count(t, vm)
	s.isBack(t, vm, 1)
	operator.Stop()
	s.tell(t, vm, bootsector.PowerOff)
	lab.Eventually(t, patience, func() error {
		if c := s.pod(t, vm).Status.ContainerStatuses[0]; c.RestartCount == 0 || c.State.Running == nil || c.Ready {
			return fmt.Errorf("the container has not been started again: %+v", c)
		}
		return nil
	})
	// A runner that were to start its machine again would have done so by then.
	time.Sleep(vmrunner.ParkedFor + 5*time.Second)
	if s.Get(t, vm); vm.Spec.VM.State != v1.StateRunning || seen.starts() != 1 {
		t.Errorf("the machine is to be %s, there is no operator, and QEMU was started %d times", vm.Spec.VM.State, seen.starts())
	}
	s.operate(t)
	s.becomes(t, vm, "stopped", isStopped)
	if s.Get(t, vm); vm.Spec.VM.State != v1.StateStopped || seen.starts() != 1 {
		t.Errorf("the machine is to be %s, and QEMU was started %d times", vm.Spec.VM.State, seen.starts())
	}
	s.set(t, vm, func(vm *v1.VM) { vm.State = v1.StateRunning })
	s.isBack(t, vm, 2)
}

// TestFaultAPIServerRestarts: changes of a running machine take effect although the API server is away meanwhile.
func TestFaultAPIServerRestarts(t *testing.T) {
	isLong(t)
	s, vm, seen := faulty(t, "api-server")
	for cpus := int32(2); cpus <= 4; cpus++ {
		s.set(t, vm, func(vm *v1.VM) { vm.CurrentCPUs = &cpus })
		if err := s.Restart(t.Context(), managementcluster.APIServer); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		s.becomes(t, vm, fmt.Sprintf("using %d CPUs", cpus), func(s v1.VirtualMachineStatus) bool { return runs(s) && s.CPUs == cpus })
		t.Logf("%d CPUs %s after the API server was back", cpus, time.Since(begun).Round(100*time.Millisecond))
	}
	if seen.starts() != 1 {
		t.Errorf("QEMU was started %d times", seen.starts())
	}
}

// TestFaultDiskIsFull: a machine whose disk has no space left is paused, says so, and continues once there is space.
func TestFaultDiskIsFull(t *testing.T) {
	s := newStage(t, "disk-full")
	s.operate(t)
	directory := directory(t)
	mount(t, "-t", "tmpfs", "-o", "size=4m", "none", directory)
	t.Cleanup(func() { // also when the device could not be detached
		if output, err := exec.Command("umount", "--lazy", directory).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, output)
		}
	})
	s.Create(t, newTinyDevice(t, directory, 8<<20).Volume("disk-full", "8Mi"))
	vm := s.declareTiny("disk-full", "8Mi")
	s.start(t, vm)
	seen := count(t, vm)
	s.isBack(t, vm, 1)
	s.tell(t, vm, bootsector.FillDisk)
	s.becomes(t, vm, "unhealthy", isUnhealthy)
	c := meta.FindStatusCondition(vm.Status.Conditions, "Ready")
	t.Logf("it says %s: %s", c.Reason, c.Message)
	mount(t, "-o", "remount,size=32m", directory)
	s.says(t, vm, bootsector.Filled(8<<20))
	s.becomes(t, vm, "healthy", runs)
	if seen.starts() != 1 {
		t.Errorf("QEMU was started %d times", seen.starts())
	}
}

func mount(t *testing.T, arguments ...string) {
	t.Helper()
	if output, err := exec.Command("mount", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("mount %v: %v: %s", arguments, err, output)
	}
}

// isUnhealthy reports whether a machine says that it runs and is unhealthy.
func isUnhealthy(s v1.VirtualMachineStatus) bool {
	c := meta.FindStatusCondition(s.Conditions, "Ready")
	return c != nil && c.Reason == virtualmachine.ReasonUnhealthy
}

// cuts is how often the link is cut. After a few of them, the operator takes five seconds or more for the next link.
const cuts = 12

// TestFaultLinkIsCut: however often the link between operator and runner is cut, changes take effect, and nothing is
// left of the links.
func TestFaultLinkIsCut(t *testing.T) {
	isLong(t)
	s, vm, _ := faulty(t, "link-cut")
	runner := runnerOf(t, vm)
	links := func() []process {
		return processes(t, "runner", func(p process) bool { return isRunner(p, "link") && p.sees(runner) })
	}
	awaitLink := func() (link process) {
		t.Helper()
		lab.Eventually(t, patience, func() error {
			all := links()
			if len(all) != 1 {
				return fmt.Errorf("there are %d links", len(all))
			}
			link = all[0]
			return nil
		})
		return link
	}
	awaitLink()
	s.becomes(t, vm, "linked", func(s v1.VirtualMachineStatus) bool { return s.Accelerator != "" })
	before := descriptors(t, runner)
	begun := time.Now()
	for i := range cuts {
		awaitLink().signal(t, syscall.SIGKILL)
		s.set(t, vm, func(vm *v1.VM) { vm.PowerdownTimeout = 10 + int32(i) })
	}
	t.Logf("%d cuts took %s", cuts, time.Since(begun).Round(time.Second))
	s.set(t, vm, func(vm *v1.VM) { vm.CurrentCPUs = ptr.To[int32](2) })
	s.becomes(t, vm, "changed", func(s v1.VirtualMachineStatus) bool {
		return s.CPUs == 2 && meta.IsStatusConditionTrue(s.Conditions, "ChangesApplied")
	})
	awaitLink()
	lab.Eventually(t, patience, func() error {
		if after := descriptors(t, runner); after > before+2 { // the links that just begin or end
			return fmt.Errorf("the runner had %d files and has %d", before, after)
		}
		return nil
	})
}

// descriptors returns how many files a process has open.
func descriptors(t *testing.T, p process) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.id))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// faulty returns a machine of the tiny guest that runs, in a namespace with its name.
func faulty(t *testing.T, name string) (stage, *v1.VirtualMachine, *census) {
	t.Helper()
	s := newStage(t, name)
	s.operate(t)
	vm := s.newTiny(t, name)
	vm.Spec.VM.MaximumCPUs = ptr.To[int32](4)
	s.start(t, vm)
	seen := count(t, vm)
	s.isBack(t, vm, 1)
	return s, vm, seen
}

// TestFaultSecretIsDeleted: the display of a running machine is locked while the user's Secret with its password is
// missing, and the machine says so.
func TestFaultSecretIsDeleted(t *testing.T) {
	s := newStage(t, "secret")
	s.operate(t)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "mine", Labels: virtualmachine.Labels("secret", map[string]string{virtualmachine.LabelComponent: virtualmachine.DisplaySecretComponent})},
		StringData: map[string]string{vmconfig.DisplayPassword: "open"},
	}
	s.Create(t, secret.DeepCopy())
	vm := s.newTiny(t, "secret")
	vm.Spec.VM.Display = &v1.Display{SPICE: &v1.SPICE{Port: 5900}}
	s.start(t, vm)
	s.isBack(t, vm, 1)
	s.opens(t, vm, nil)
	s.Delete(t, secret.DeepCopy())
	s.becomes(t, vm, "locked", func(s v1.VirtualMachineStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, "ChangesApplied")
		return c != nil && c.Reason == virtualmachine.ReasonDisplayLocked
	})
	s.opens(t, vm, spiceclient.ErrRefused)
	s.Create(t, secret)
	s.becomes(t, vm, "open again", func(s v1.VirtualMachineStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, "ChangesApplied")
	})
	s.opens(t, vm, nil)
}

// opens checks what a viewer with the password "open" gets.
func (s stage) opens(t *testing.T, vm *v1.VirtualMachine, want error) {
	t.Helper()
	connection, err := s.cluster.Node(0).Dial(t.Context(), "tcp", net.JoinHostPort(s.pod(t, vm).Status.PodIP, "5900"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := spiceclient.Connect(connection, "open"); !errors.Is(err, want) {
		t.Errorf("the display answers %v, want %v", err, want)
	}
}
