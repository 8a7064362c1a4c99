package guests_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// smolPatience is how long something may take that ends with the start of an emulated machine, or with a pause of a minute
// after failures.
const smolPatience = 4 * time.Minute

// smolStage is where faults happen: the controller is on the first node, and the machines on the second.
type smolStage struct {
	*smolVMs
	lab   *lab.Lab
	node  *realcluster.Node
	diary *diary
	// values are those of the chart, besides the usual ones.
	values []string
}

func newSmolStage(t *testing.T) *smolStage {
	t.Helper()
	c := theCluster(t)
	l, err := lab.On(c.ControlPlane())
	if err != nil {
		t.Fatal(err)
	}
	s := &smolStage{
		smolVMs: &smolVMs{t: t, cluster: c, begin: time.Now(), registry: serveImages(t, c)}, lab: l, node: c.Node(1),
		values: []string{"--set=nodeSelector.kubernetes\\.io/hostname=" + c.Node(0).Name()},
	}
	t.Cleanup(s.clean)
	s.install(s.values...)
	s.kubectl("create", "namespace", "team")
	s.diary = keepDiary(t, c)
	return s
}

// clean has the second node answer again after a failure, and removes what was installed.
func (s *smolStage) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	_ = s.plug(true)
	if s.node.PID() == 0 {
		_ = s.node.Boot(ctx)
	}
	_ = s.node.StartComponent(ctx, realcluster.Kubelet) // it runs already, unless a test has failed
	for _, vm := range s.all() {
		_, _ = s.cluster.Kubectl(ctx, "--namespace=team", "annotate", "smolvm", vm.Name, v1alpha1.AnnotationForceDelete+"=true", "--overwrite")
	}
	s.remove()
}

func (s *smolStage) all() []v1alpha1.SmolVM {
	var list v1alpha1.SmolVMList
	_ = s.lab.Client.List(context.Background(), &list) // it is empty without the definition
	return list.Items
}

// apply declares a machine on the second node, unless change says otherwise.
func (s *smolStage) apply(name string, port int32, change func(*v1alpha1.SmolVMSpec)) {
	s.t.Helper()
	vm := s.declared(name, port)
	if change != nil {
		change(&vm.Spec)
	}
	s.lab.Create(s.t, vm)
}

// declared returns a machine on the second node.
func (s *smolStage) declared(name string, port int32) *v1alpha1.SmolVM {
	return &v1alpha1.SmolVM{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: v1alpha1.SmolVMSpec{
		Running: true, Image: "web:1", NodeName: s.node.Name(), Resources: v1alpha1.Resources{CPUs: 1, MemoryMiB: 256},
		Storage: v1alpha1.Storage{StorageGiB: 1, OverlayGiB: 1}, Network: v1alpha1.Network{Enabled: true, Ports: []v1alpha1.Port{{HostPort: port, GuestPort: 80}}},
	}}
}

func (s *smolStage) get(name string) *v1alpha1.SmolVM {
	s.t.Helper()
	vm := &v1alpha1.SmolVM{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	s.lab.Get(s.t, vm)
	return vm
}

// is waits until a SmolVM has a phase and conditions, each written as Type=Status/Reason, or Type=Status/Reason|Reason.
func (s *smolStage) is(name string, phase v1alpha1.Phase, conditions ...string) *v1alpha1.SmolVM {
	s.t.Helper()
	var vm *v1alpha1.SmolVM
	differs := func() string {
		vm = s.get(name)
		if vm.Status.Phase != phase {
			return fmt.Sprintf("the phase is %s, want %s", vm.Status.Phase, phase)
		}
		for _, want := range conditions {
			kind, _, _ := strings.Cut(want, "=")
			c := meta.FindStatusCondition(vm.Status.Conditions, kind)
			if c == nil || !matches(*c, want) {
				return fmt.Sprintf("%s is %+v, want %s", kind, c, want)
			}
		}
		return ""
	}
	for deadline := time.Now().Add(smolPatience); ; time.Sleep(200 * time.Millisecond) {
		wrong := differs()
		if wrong == "" {
			return vm
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: %s\n%s", name, wrong, s.explain(name))
		}
	}
}

func matches(c metav1.Condition, want string) bool {
	holds, reasons, _ := strings.Cut(want, "/")
	return holds == fmt.Sprintf("%s=%s", c.Type, c.Status) && slices.Contains(strings.Split(reasons, "|"), c.Reason)
}

// isSilent waits until a SmolVM says that its node does not answer: it takes requests, or is not there. It says no more.
func (s *smolStage) isSilent(name string) {
	s.t.Helper()
	s.is(name, v1alpha1.PhaseUnknown, "Ready=False/Timeout|RuntimeUnavailable", "Reconciled=False/Timeout|RuntimeUnavailable",
		"GuestReady=Unknown/GuestReadinessUnavailable", "LocalStateLost=False/MachineObserved")
	s.shows(name, "(Timeout|RuntimeUnavailable)", s.node.Name())
}

// runs waits until a machine is as declared, and runs.
func (s *smolStage) runs(name string) *v1alpha1.SmolVM {
	s.t.Helper()
	return s.is(name, v1alpha1.PhaseRunning, "Ready=True/Observed", "GuestReady=True/AgentAnswers", "Reconciled=True/Reconciled", "LocalStateLost=False/MachineObserved")
}

func (s *smolStage) explain(name string) string {
	var all strings.Builder
	for _, args := range [][]string{
		{"--namespace=team", "describe", "smolvm", name}, {"get", "smolvmnodes", "--output=yaml"}, {"--namespace=" + smolNamespace, "get", "pods", "--output=wide"},
		{"--namespace=" + smolNamespace, "logs", "deployment/smolvm-controller", "--tail=40"},
		{"--namespace=" + smolNamespace, "logs", "--selector=app.kubernetes.io/name=smolvm-runtime", "--prefix", "--tail=40"},
	} {
		out, err := s.cluster.Kubectl(context.Background(), args...)
		fmt.Fprintln(&all, out, err)
	}
	return all.String()
}

// shows waits until kubectl shows users a warning with the reason, and words of its message.
func (s *smolStage) shows(name, reason, words string) {
	s.t.Helper()
	warning := regexp.MustCompile(`(?m)^\s*Warning\s+` + reason + `\s.*` + regexp.QuoteMeta(words))
	poll.Eventually(s.t, patience, 500*time.Millisecond, func() error {
		if described := s.kubectl("--namespace=team", "describe", "smolvm", name); !warning.MatchString(described) {
			return fmt.Errorf("no warning %s says %q: %s", reason, words, described)
		}
		return nil
	})
}

// gone waits until a SmolVM is gone.
func (s *smolStage) gone(name string) {
	s.t.Helper()
	s.lab.AwaitGone(s.t, &v1alpha1.SmolVM{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}})
}

func (s *smolStage) delete(name string) {
	s.t.Helper()
	s.kubectl("--namespace=team", "delete", "smolvm", name, "--wait=false")
}

func (s *smolStage) annotate(name, annotation string) {
	s.t.Helper()
	s.kubectl("--namespace=team", "annotate", "smolvm", name, annotation+"="+v1alpha1.AnnotationTrue)
}

func (s *smolStage) setRunning(name string, running bool) {
	s.t.Helper()
	s.kubectl("--namespace=team", "patch", "smolvm", name, "--type=merge", fmt.Sprintf(`--patch={"spec":{"running":%t}}`, running))
}

// listens waits until a port of the second node answers, or does not.
func (s *smolStage) listens(port int, want bool) {
	s.t.Helper()
	for deadline := time.Now().Add(smolPatience); s.answersAt(s.node, port) != want; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("port %d answers: %t\n%s", port, !want, s.explain("web"))
		}
	}
}

// runtime returns the pod of the runtime of the second node.
func (s *smolStage) runtime() string {
	s.t.Helper()
	return s.kubectl("--namespace="+smolNamespace, "get", "pods", "--selector=app.kubernetes.io/name=smolvm-runtime",
		"--field-selector=status.phase=Running,spec.nodeName="+s.node.Name(), "--output=name")
}

// smolvm runs the command in the runtime's pod, as soon as kubelet lets it.
func (s *smolStage) smolvm(arguments ...string) string {
	s.t.Helper()
	var out string
	poll.Eventually(s.t, patience, 500*time.Millisecond, func() (err error) {
		out, err = s.cluster.Kubectl(s.t.Context(), append([]string{"--namespace=" + smolNamespace, "exec", s.runtime(), "--", "smolvm"}, arguments...)...)
		if err != nil {
			return fmt.Errorf("smolvm %s: %w: %s", strings.Join(arguments, " "), err, out)
		}
		return nil
	})
	return strings.TrimSpace(out)
}

// inGuest runs a script in a guest.
func (s *smolStage) inGuest(name, script string) string {
	s.t.Helper()
	return s.smolvm("machine", "exec", s.get(name).Status.MachineName, "--", "sh", "-c", script)
}

// mark writes into a guest's memory and onto its disk.
func (s *smolStage) mark(name string) {
	s.t.Helper()
	s.inGuest(name, "echo memory >/run/kept; echo disk >/storage/kept; sync")
}

// has compares what was marked with what the guest has: memory and disk, the disk, or nothing.
func (s *smolStage) has(name, want string) {
	s.t.Helper()
	if got := strings.Join(strings.Fields(s.inGuest(name, "cat /run/kept /storage/kept 2>/dev/null; true")), " "); got != want {
		s.t.Errorf("the guest of %s has %q, want %q", name, got, want)
	}
}

// directoryOf is where a machine is on its node.
func directoryOf(vm *v1alpha1.SmolVM) string {
	sum := sha256.Sum256([]byte(vm.Status.MachineName))
	return "/var/lib/smolvm/machines/" + hex.EncodeToString(sum[:])[:16]
}

// qemu returns the only QEMU of a machine on all nodes.
func (s *smolStage) qemu(name string) int {
	s.t.Helper()
	found := qemusWith(s.t, directoryOf(s.get(name)))
	if len(found) != 1 {
		s.t.Fatalf("%s has %d QEMUs: %v", name, len(found), found)
	}
	return found[0].id
}

// machines returns the directories of machines on a node.
func (s *smolStage) machines(node *realcluster.Node) []string {
	s.t.Helper()
	out, err := node.Exec(s.t.Context(), "sh", "-c", "ls -d /var/lib/smolvm/machines/*/ 2>/dev/null || true")
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Fields(out)
}

// processes returns those of the second node with a program and, among its arguments, all of the words.
func (s *smolStage) processes(program string, words ...string) []process {
	s.t.Helper()
	node := process{id: s.node.PID()}
	return processes(s.t, program, func(p process) bool {
		return p.program == program && p.sees(node) && !slices.ContainsFunc(words, func(word string) bool { return !slices.Contains(p.arguments, word) })
	})
}

func (s *smolStage) server() []process { return s.processes("smolvm", "serve") }
func (s *smolStage) agent() []process  { return s.processes("kvm-operator", "runtime") }

// kill kills processes, and waits until they have ended.
func (s *smolStage) kill(all ...process) {
	s.t.Helper()
	for _, p := range all {
		_ = syscall.Kill(p.id, syscall.SIGKILL) // it may have ended with another of them
	}
	for _, p := range all {
		poll.Eventually(s.t, patience, 20*time.Millisecond, func() error {
			if p.runs() {
				return fmt.Errorf("process %d does not end", p.id)
			}
			return nil
		})
	}
}

// stopKubelet stops the kubelet of the second node. Pods keep running, and nothing of them is restarted or changed.
func (s *smolStage) stopKubelet() {
	s.t.Helper()
	if err := s.node.StopComponent(realcluster.Kubelet); err != nil {
		s.t.Fatal(err)
	}
}

func (s *smolStage) startKubelet() {
	s.t.Helper()
	if err := s.node.StartComponent(s.t.Context(), realcluster.Kubelet); err != nil {
		s.t.Fatal(err)
	}
}

// empty removes all that the second node has of SmolVMs. Its kubelet is stopped.
func (s *smolStage) empty() {
	s.t.Helper()
	for _, program := range []string{"kvm-operator", "smolvm", "qemu-system-x86_64"} {
		s.kill(s.processes(program)...)
	}
	if out, err := s.node.Exec(s.t.Context(), "rm", "-rf", "/var/lib/smolvm", "/run/smolvm"); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
}
