package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kvm-operator/kvm-operator/integration/harness/kubevirt"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

const (
	// silence is how long nothing is printed while the demo works, and longSilence how long later in a step that takes longer.
	silence, longSilence = 2 * time.Second, 5 * time.Second
	// operatorGrace is how long the operator may take to give up its Lease and to end.
	operatorGrace = 10 * time.Second
)

// machinesDemo is a demo of Machines: real control planes of Kubernetes and KubeVirt, simulated nodes, and the operator.
type machinesDemo struct {
	*demo
	cluster  *managementcluster.Cluster
	kubeVirt *kubevirt.KubeVirt
	storage  *kubevirt.Provisioner
	operator *process.Process
	clients  kubernetes.Interface // of an administrator
	address  string               // of the operator's metrics and probes
	seen     map[string]string    // what was said about each Machine

	mu     sync.Mutex // guards spoken
	spoken time.Time  // when something was last printed
}

// upMachines runs the demo of Machines from start to end. An interrupt is not an error.
func upMachines(ctx context.Context, s state, timeout time.Duration, exit bool) (err error) {
	if err := s.free(); err != nil {
		return err
	}
	if err := s.take(); err != nil {
		return err
	}
	d := &machinesDemo{demo: newDemo(s), seen: map[string]string{}}
	defer func() {
		if ctx.Err() != nil {
			err = nil
		}
		err = errors.Join(err, d.stop())
		err = errors.Join(err, d.end(err == nil))
	}()
	if err := d.work(ctx, timeout); err != nil {
		return d.explain(ctx, err)
	}
	d.say("done: Machines were created, inspected, stopped, started and deleted")
	if exit {
		d.say("to keep the others and try more: make demo-machines KEEP=1")
		return nil
	}
	fmt.Print(d.hints())
	return d.explain(ctx, d.await(ctx, func(machines) error { return errNever }))
}

// work starts everything and shows Machines, within timeout.
func (d *machinesDemo) work(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the demo has not ended within %s", timeout))
	defer cancel()
	d.say("no guest boots here: the control planes of Kubernetes and KubeVirt and the operator are real. kwok plays the kubelets")
	d.say("of the nodes, and the demo plays virt-handler, which would run guests on them, and the storage driver")
	steps := append(d.starting(), d.tour()...)
	for _, step := range steps {
		if err := d.patiently(ctx, step); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// step is a part of the demo.
type step struct {
	what string
	do   func(context.Context) error
}

// patiently says what a step does, and while it is silent, that it is still in progress.
func (d *machinesDemo) patiently(ctx context.Context, s step) error {
	d.say("%s", s.what)
	began, over := time.Now(), make(chan struct{})
	var speaker sync.WaitGroup
	speaker.Go(func() {
		for most := silence; ; {
			select {
			case <-over:
				return
			case <-time.After(time.Until(d.lastSpoken().Add(most))):
			}
			if time.Since(d.lastSpoken()) >= most {
				d.say("  %s so far", time.Since(began).Round(time.Second))
				most = longSilence
			}
		}
	})
	defer speaker.Wait()
	defer close(over)
	return s.do(ctx)
}

func (d *machinesDemo) lastSpoken() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.spoken
}

// say prints a line of progress. Steps say something from several goroutines.
func (d *machinesDemo) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spoken = time.Now()
	d.demo.say(format, args...)
}

// print prints text that belongs to the last line.
func (d *machinesDemo) print(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spoken = time.Now()
	fmt.Print(text)
}

// Write says each line of a part's progress.
func (d *machinesDemo) Write(line []byte) (int, error) {
	d.say("  %s", trimNewline(line))
	return len(line), nil
}

func trimNewline(line []byte) []byte {
	for len(line) > 0 && line[len(line)-1] == '\n' {
		line = line[:len(line)-1]
	}
	return line
}

// stop ends every process, the operator in order. It may be called at any time.
func (d *machinesDemo) stop() error {
	var errs []error
	if d.operator != nil {
		errs = append(errs, d.operator.Stop(operatorGrace))
	}
	if d.storage != nil {
		d.storage.Stop()
	}
	if d.kubeVirt != nil {
		errs = append(errs, d.kubeVirt.Stop())
	}
	if d.cluster != nil {
		errs = append(errs, d.cluster.Stop())
	}
	return errors.Join(errs...)
}
