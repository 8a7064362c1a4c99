package lab

import (
	"bufio"
	"context"
	"io"
	"maps"
	"sync"

	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// FakeRunners stand for the runners of VirtualMachines on simulated hosts: they report every machine as what was ordered,
// besides the problems that a test sets. The zero value is usable.
type FakeRunners struct {
	mu sync.Mutex
	// problems are what the runner in a pod reports, by the pod's name.
	problems map[string]map[string]string
	orders   int
}

// Fail makes the runner of a pod report a problem with its next orders, or none if the text is empty.
func (r *FakeRunners) Fail(pod, part, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text == "" {
		delete(r.problems, pod)
		return
	}
	if r.problems == nil {
		r.problems = map[string]map[string]string{}
	}
	r.problems[pod] = map[string]string{part: text}
}

func (r *FakeRunners) obey(pod string, order vmconfig.Order) vmconfig.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.orders++
	return vmconfig.Report{
		State: "Running", Accelerator: "tcg", Wanted: order.Live, CPUs: order.Live.CurrentCPUs, RAM: order.Live.CurrentRAM, Problems: maps.Clone(r.problems[pod]),
	}
}

// Ordered returns how many orders there were.
func (r *FakeRunners) Ordered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.orders
}

// Dial is for service.Config.Link.
func (r *FakeRunners) Dial(ctx context.Context, runner virtualmachine.RunnerID, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		order, err := vmconfig.DecodeOrder(lines.Bytes())
		if err != nil {
			return err
		}
		line, err := r.obey(runner.Pod.Name, order).Encode()
		if err != nil {
			return err
		}
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}
