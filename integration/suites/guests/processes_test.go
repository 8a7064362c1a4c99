package guests_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

// process is a process of this machine, which sees those of all nodes.
type process struct {
	id        int
	program   string
	arguments []string
}

// processes returns the processes with a text in their command line that match, without those that end meanwhile.
func processes(t testing.TB, text string, matches func(process) bool) (found []process) {
	t.Helper()
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Error(err)
	}
	for _, command := range commands {
		line, err := os.ReadFile(command)
		if err != nil || !bytes.Contains(line, []byte(text)) {
			continue
		}
		directory := filepath.Dir(command)
		program, err := os.Readlink(filepath.Join(directory, "exe"))
		if err != nil {
			continue
		}
		p := process{program: filepath.Base(program)}
		for argument := range bytes.SplitSeq(bytes.TrimSuffix(line, []byte{0}), []byte{0}) {
			p.arguments = append(p.arguments, string(argument))
		}
		if p.id, err = strconv.Atoi(filepath.Base(directory)); err == nil && matches(p) {
			found = append(found, p)
		}
	}
	return found
}

func (p process) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(p.id, signal); err != nil {
		t.Errorf("signalling %s: %v", p.program, err)
	}
}

// sees returns whether both processes are in one namespace for processes, which is that of a container.
func (p process) sees(another process) bool {
	return namespaceOf(p.id) == namespaceOf(another.id)
}

// runs returns whether the process runs. One whose parent does not ask how it ended has an id, and no program.
func (p process) runs() bool {
	_, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.id))
	return err == nil
}

func namespaceOf(id int) string {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", id))
	if err != nil {
		return fmt.Sprintf("process %d has ended", id)
	}
	return name
}

// qemusOf returns the QEMUs of the machine with this UID.
func qemusOf(t testing.TB, uid types.UID) []process {
	t.Helper()
	return qemusWith(t, string(uid))
}

// qemusWith returns the QEMUs with a text in their command lines.
func qemusWith(t testing.TB, text string) []process {
	t.Helper()
	return processes(t, text, func(p process) bool { return strings.HasPrefix(p.program, "qemu-system") })
}

// qemuOf waits for the QEMU of a machine.
func qemuOf(t *testing.T, vm *v1.VirtualMachine) process {
	t.Helper()
	var found []process
	poll.Eventually(t, patience, 50*time.Millisecond, func() error {
		if found = qemusOf(t, vm.UID); len(found) == 0 {
			return fmt.Errorf("no QEMU runs the machine %s", vm.Name)
		}
		return nil
	})
	return found[0]
}

// runnerOf returns the runner of a machine that runs, and what it runs there besides QEMU.
func runnerOf(t *testing.T, vm *v1.VirtualMachine) process {
	t.Helper()
	qemu := qemuOf(t, vm)
	found := processes(t, "runner", func(p process) bool { return isRunner(p, "vm") && p.sees(qemu) })
	if len(found) != 1 {
		t.Fatalf("%d runners are beside the QEMU of %s", len(found), vm.Name)
	}
	return found[0]
}

func isRunner(p process, command string) bool {
	return len(p.arguments) > 2 && p.program == "kvm-operator" && p.arguments[1] == "runner" && p.arguments[2] == command
}

// census counts the QEMUs of a machine.
type census struct {
	mu   sync.Mutex
	most int
	ids  map[int]bool
}

// count counts the QEMUs of a machine until the end of the test, which fails if there were two at a time.
func count(t *testing.T, vm *v1.VirtualMachine) *census {
	t.Helper()
	return countWith(t, vm.Name, string(vm.UID))
}

// countWith is count of a machine whose QEMUs have a text in their command lines.
func countWith(t *testing.T, name, text string) *census {
	t.Helper()
	c := &census{ids: map[int]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			c.add(qemusWith(t, text))
		}
	})
	t.Cleanup(func() {
		stop()
		done.Wait()
		if c.most > 1 {
			t.Errorf("%d QEMUs had the disk of %s at a time", c.most, name)
		}
	})
	return c
}

func (c *census) add(found []process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most = max(c.most, len(found))
	for _, p := range found {
		c.ids[p.id] = true
	}
}

// starts is how often QEMU was started.
func (c *census) starts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids)
}
