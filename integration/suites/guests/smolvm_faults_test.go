package guests_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	program "github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// Ports of the second node.
const (
	webPort      = 18081
	strangerPort = 18082
	forcedPort   = 18083
)

// TestSmolVMFaults breaks what is below SmolVMs, and checks what users see. In all of it, no machine is made again,
// moves, or loses its disks without saying so, no two QEMUs have the disks of one, and everything recovers once the
// fault ends. The parts need each other's machines.
func TestSmolVMFaults(t *testing.T) {
	isLong(t)
	s := newSmolStage(t)
	s.apply("web", webPort, nil)
	s.runs("web")
	s.mark("web")
	countWith(t, "web", directoryOf(s.get("web")))
	s.say("the first machine runs")
	for _, fault := range []struct {
		name string
		do   func(*smolStage)
	}{
		{"machines are placed, or say why not", placement},
		{"a machine is applied, and one is made by smolvm on the node", appliedBesideTold},
		{"F1: server and agent are killed", killedServers},
		{"F2: the runtime's image changes", anotherImage},
		{"F13: a stranger has the port", strangerAtPort},
		{"F6: the token changes, and does not reach the node", staleToken},
		{"F6: the certificate is made again", anotherCertificate},
		{"F6: an impostor answers for the node", impostor},
		{"F7: another smolvm has the socket", strangerAtSocket},
		{"F14: the node cannot be reached while a machine is deleted", unreachable},
		{"F14: a machine is given up with its node", givenUp},
		{"F3: the node loses its power", powerLoss},
		{"F4: the node is deleted and registers again", registersAgain},
		{"F5: another node has the name", replaced},
		{"F5: the node has lost its disk", missing},
		{"F15: the chart is removed and installed again", uninstalled},
	} {
		if !t.Run(fault.name, func(t *testing.T) {
			s.t = t
			fault.do(s)
		}) {
			break
		}
		s.t = t
		s.say(fault.name)
	}
	s.t = t
	t.Logf("web has said %s", strings.Join(s.diary.of("web"), ", "))
}

// placement: a machine gets the node that it names, or one with its labels; and it waits for a port and for room.
func placement(s *smolStage) {
	stopped := func(change func(*v1alpha1.SmolVMSpec)) func(*v1alpha1.SmolVMSpec) {
		return func(spec *v1alpha1.SmolVMSpec) {
			spec.Running = false
			change(spec)
		}
	}
	first := s.cluster.Node(0).Name()
	s.apply("selected", webPort, stopped(func(spec *v1alpha1.SmolVMSpec) {
		spec.NodeName, spec.NodeSelector = "", map[string]string{"kubernetes.io/hostname": first}
	}))
	if vm := s.is("selected", v1alpha1.PhaseCreated, "Reconciled=True/Reconciled"); vm.Status.NodeName != first {
		s.t.Errorf("the machine is on %s", vm.Status.NodeName)
	}
	if vm := s.get("web"); vm.Status.NodeName != s.node.Name() {
		s.t.Errorf("the machine is on %s", vm.Status.NodeName)
	}
	s.apply("conflict", webPort, stopped(func(*v1alpha1.SmolVMSpec) {}))
	s.apply("large", strangerPort, stopped(func(spec *v1alpha1.SmolVMSpec) { spec.NodeName, spec.Resources.MemoryMiB = "", 1<<20 }))
	for _, name := range []string{"conflict", "large"} {
		s.is(name, v1alpha1.PhasePending, "Scheduled=False/NoEligibleNodes", "Ready=False/AwaitingNodeAssignment")
	}
	for _, name := range []string{"selected", "conflict", "large"} {
		s.delete(name)
		s.gone(name)
	}
	if left := s.machines(s.cluster.Node(0)); len(left) > 0 {
		s.t.Errorf("the first node has %v", left)
	}
}

// undisturbed does something that a machine must not notice, and waits until it is as declared again.
func (s *smolStage) undisturbed(what string, do func()) {
	s.t.Helper()
	before, pid := s.get("web"), s.qemu("web")
	do()
	if !s.answersAt(s.node, webPort) {
		s.t.Errorf("%s: the port does not answer", what)
	}
	after := s.runs("web")
	s.has("web", "memory disk")
	if again := s.qemu("web"); again != pid || !after.Status.StartTime.Equal(before.Status.StartTime) {
		s.t.Errorf("%s: QEMU is process %d and was %d, started at %s and %s", what, again, pid, after.Status.StartTime, before.Status.StartTime)
	}
	s.say(what)
}

// killedServers: the machine keeps running, and the next server can listen on the socket that the last one left.
func killedServers(s *smolStage) {
	for _, victims := range []struct {
		what string
		kill func() []process
	}{
		{"the server is killed", s.server},
		{"the agent is killed", s.agent},
		{"both are killed", func() []process { return append(s.agent(), s.server()...) }},
	} {
		s.undisturbed(victims.what, func() {
			all := victims.kill()
			if len(all) == 0 {
				s.t.Fatal("there is nothing to kill")
			}
			s.kill(all...)
			s.serves()
		})
	}
}

// serves waits until the runtime of the node passes requests on.
func (s *smolStage) serves() {
	s.t.Helper()
	poll.Eventually(s.t, smolPatience, 100*time.Millisecond, func() error {
		if agents, servers := s.agent(), s.server(); len(agents) == 0 || len(servers) == 0 {
			return fmt.Errorf("there are the agents %v and the servers %v", agents, servers)
		}
		return nil
	})
	s.smolvm("machine", "ls")
	s.kubectl("wait", "--for=condition=Ready", "smolvmnode/"+s.node.Name(), "--timeout=180s")
}

// anotherImage: the DaemonSet gets another image, and the former one is removed from the node, while the machine runs.
func anotherImage(s *smolStage) {
	next := smolImage() + "-next"
	s.undisturbed("the runtime's image has changed, and the former one is removed", func() {
		for _, node := range s.cluster.Nodes() {
			if out, err := node.Exec(s.t.Context(), "ctr", "--namespace=k8s.io", "images", "tag", "--force", smolImage(), next); err != nil {
				s.t.Fatalf("%v: %s", err, out)
			}
		}
		s.values = append(s.values, "--set=smolvm.runtime.image="+next)
		s.install(s.values...)
		s.kubectl("--namespace="+smolNamespace, "rollout", "status", "daemonset/smolvm-runtime", "--timeout=240s")
		if out, err := s.node.Exec(s.t.Context(), "ctr", "--namespace=k8s.io", "images", "rm", "--sync", smolImage()); err != nil {
			s.t.Fatalf("%v: %s", err, out)
		}
		s.serves()
	})
}

// strangerAtPort: a machine waits for a port that another program has, which is left alone, and starts once it is free.
func strangerAtPort(s *smolStage) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		s.t.Fatal(err)
	}
	empty := s.t.TempDir()
	if err := os.WriteFile(filepath.Join(empty, "index.html"), []byte("a stranger"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	stranger, err := s.node.Start(program.Command{
		Name: "stranger", Path: busybox, Args: []string{"httpd", "-f", "-p", strconv.Itoa(strangerPort), "-h", "/"}, Dir: empty,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = stranger.Stop(0) }()
	s.apply("second", strangerPort, nil)
	s.is("second", v1alpha1.PhaseCreated, "Ready=False/PortConflict", "Reconciled=False/PortConflict", "GuestReady=False/GuestStopped")
	s.shows("second", "PortConflict", strconv.Itoa(strangerPort))
	if found := qemusWith(s.t, directoryOf(s.get("second"))); len(found) > 0 {
		s.t.Errorf("a machine that waits for its port has %v", found)
	}
	select {
	case <-stranger.Done():
		s.t.Fatalf("the stranger was disturbed: %v", stranger.Failure())
	default:
	}
	if err := stranger.Stop(0); err != nil {
		s.t.Fatal(err)
	}
	s.runs("second")
	s.listens(strangerPort, true)
}

// strangerAtSocket: for another smolvm, which someone has started by hand, all machines are missing. It is not asked.
func strangerAtSocket(s *smolStage) {
	agent := s.agent()
	if len(agent) != 1 {
		s.t.Fatalf("there are the agents %v", agent)
	}
	// The program is that of the image, whose files are seen through the process. A socket has a short path.
	directory, err := os.MkdirTemp("/tmp", "smol")
	if err != nil {
		s.t.Fatal(err)
	}
	defer os.RemoveAll(directory)
	smolvm := filepath.Join(directory, "smolvm")
	if err := exec.Command("cp", "/proc/"+strconv.Itoa(agent[0].id)+"/root/usr/local/bin/smolvm", smolvm).Run(); err != nil {
		s.t.Fatal(err)
	}
	guest, err := filepath.Abs(tools + "/guest")
	if err != nil {
		s.t.Fatal(err)
	}
	s.undisturbed("another smolvm had the socket", func() {
		agent[0].signal(s.t, syscall.SIGSTOP) // it would start the next server at once
		s.kill(s.server()...)
		stranger, err := s.node.Start(program.Command{Name: "stranger", Path: smolvm, Dir: directory, Args: []string{
			"serve", "start", "--listen=unix:///run/smolvm/smolvm.sock", "--state=" + directory + "/state", "--run=" + directory + "/run",
			"--kernel=" + guest + "/vmlinuz", "--initrd=" + guest + "/micro.cpio.gz", "--acceleration=tcg", "--allow-emulation",
		}})
		if err != nil {
			s.t.Fatal(err)
		}
		defer func() { _ = stranger.Stop(0) }()
		s.answersOnSocket(smolvm, stranger)
		agent[0].signal(s.t, syscall.SIGCONT)
		s.kubectl("wait", "--for=condition=Ready=false", "smolvmnode/"+s.node.Name(), "--timeout=180s")
		if text := s.kubectl("describe", "smolvmnode", s.node.Name()); !strings.Contains(text, "another server answers there") {
			s.t.Errorf("the SmolVMNode says %s", text)
		}
		s.is("web", v1alpha1.PhaseUnknown, "Ready=False/RuntimeUnavailable", "Reconciled=False/RuntimeUnavailable", "LocalStateLost=False/MachineObserved")
		s.shows("web", "RuntimeUnavailable", "")
		if err := stranger.Stop(0); err != nil {
			s.t.Fatal(err)
		}
		s.serves()
	})
}

// answersOnSocket waits until a smolvm answers on the socket of the second node.
func (s *smolStage) answersOnSocket(smolvm string, stranger *program.Process) {
	s.t.Helper()
	poll.Eventually(s.t, patience, 200*time.Millisecond, func() error {
		if _, err := s.node.Exec(s.t.Context(), smolvm, "machine", "ls", "--host=unix:///run/smolvm/smolvm.sock"); err != nil {
			return fmt.Errorf("%w: %w", err, stranger.Failure())
		}
		return nil
	})
}
