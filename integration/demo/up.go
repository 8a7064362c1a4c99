package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/integration/harness/blockdevice"
	"github.com/kvm-operator/kvm-operator/integration/harness/stage"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

// examples is the directory of the manifests: kvmconfig.yaml for the management cluster and web.yaml for the workload
// cluster.
const examples = "docs/examples/demo"

// explainTimeout is how long fetching the logs may take after the demo has failed.
const explainTimeout = time.Minute

// purpose is what a demo is run for.
type purpose int

const (
	// prove ends the demo as soon as the workload cluster has done its work.
	prove purpose = iota
	// keep keeps it until an interrupt.
	keep
	// develop keeps it, and replaces the operator whenever its sources change.
	develop
)

// up runs the demo from start to end. An interrupt is not an error.
func up(ctx context.Context, s state, timeout time.Duration, why purpose, smolVMs bool) (err error) {
	if err := check(s, os.Geteuid()); err != nil {
		return err
	}
	if err := s.take(); err != nil {
		return err
	}
	d := newDemo(s)
	d.smolVMs = smolVMs
	defer func() {
		if ctx.Err() != nil {
			err = nil
		}
		err = errors.Join(err, d.end(err == nil))
	}()
	if err := d.start(ctx); err != nil {
		return err
	}
	if why == develop {
		return d.develop(ctx)
	}
	if err := d.work(ctx, timeout); err != nil {
		return d.explain(ctx, err)
	}
	d.say("done: the workload cluster runs and does its work")
	if why == prove {
		d.say("to keep it and try more: make demo KEEP=1")
		return nil
	}
	fmt.Print(d.hints())
	return d.follow(ctx, never)
}

// demo is a demo while it runs.
type demo struct {
	state  state
	began  time.Time
	stage  *stage.Stage
	client client.Client
	// smolVMs is whether the hosts of workers run SmolVMs, too.
	smolVMs bool
	config  *v1alpha1.KVMConfig // the one to follow, from the example
	// replace are parts of the example and their replacements, see chooseMachines.
	replace []string
	last    observation
	view    view
}

func newDemo(s state) *demo { return &demo{state: s, began: time.Now()} }

// start sets up the management cluster with the operator.
func (d *demo) start(ctx context.Context) (err error) {
	if d.config, err = readKVMConfig(d.example("kvmconfig.yaml")); err != nil {
		return err
	}
	if err := d.chooseMachines(ctx); err != nil {
		return err
	}
	spec := d.config.Spec.Cluster
	d.say("Ctrl-C stops the demo at any moment and cleans up") // make has said how long it takes
	d.stage, err = stage.Start(ctx, stage.Options{
		Root: d.state.root, Dir: d.state.cluster(), Masters: len(spec.Masters), Workers: len(spec.Workers), Say: d.say, Image: stage.BareImage, SmolVMs: d.smolVMs,
	})
	if err != nil {
		return err
	}
	return d.connect(ctx, v1alpha1.AddToScheme)
}

// connect stores a kubeconfig of the management cluster for the user, and makes a client that knows the kinds.
func (d *demo) connect(ctx context.Context, kinds func(*apiruntime.Scheme) error) error {
	published, err := d.stage.Cluster.Publish(ctx)
	if err != nil {
		return err
	}
	if err := copyPrivate(d.state.management(), published); err != nil {
		return err
	}
	log.SetLogger(logr.Discard()) // controller-runtime complains without a logger
	scheme := apiruntime.NewScheme()
	if err := kinds(scheme); err != nil {
		return err
	}
	d.client, err = client.New(d.stage.Cluster.RESTConfig(), client.Options{Scheme: scheme})
	return err
}

// work creates a workload cluster and tests it within timeout.
func (d *demo) work(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the workload cluster has not done its work within %s", timeout))
	defer cancel()
	d.say("applying %s/kvmconfig.yaml: %d master and %d workers", examples,
		len(d.config.Spec.Cluster.Masters), len(d.config.Spec.Cluster.Workers))
	manifest, err := d.manifest()
	if err != nil {
		return err
	}
	if err := d.stage.Apply(ctx, manifest); err != nil {
		return err
	}
	if err := d.follow(ctx, ready); err != nil {
		return err
	}
	kubeconfig, err := d.stage.Kubeconfig(ctx, d.config.Spec.Cluster.ID)
	if err != nil {
		return err
	}
	if err := copyPrivate(d.state.workload(), kubeconfig); err != nil {
		return err
	}
	return d.stage.Prove(ctx, d.state.workload())
}

// The example's setting of acceleration, and its replacement where KVM runs no guest.
const automatic, emulated = "{acceleration: auto}", "{acceleration: tcg}"

// The example's workers and their machines, and their replacements on a machine with few CPUs.
const (
	twoWorkers, oneWorker   = "workers: [{id: w1}, {id: w2}]", "workers: [{id: w1}]"
	twoMachines, oneMachine = "workers: [{cpus: 1, memory: 2500M}, {cpus: 1, memory: 2500M}]", "workers: [{cpus: 1, memory: 2500M}]"
)

// enoughCPUs is how many CPUs a master and two workers need that are emulated. With fewer, the workers leave the API
// server of the workload cluster too little time.
const enoughCPUs = 4

// chooseMachines finds out whether machines are emulated here, and with how many workers the demo works then.
func (d *demo) chooseMachines(ctx context.Context) error {
	d.say("finding out whether KVM runs guests here")
	prover := qemu.Prover{Kernel: filepath.Join(d.state.root, ".tools", "guest", "vmlinuz"), CPUModel: "host"}
	choice, err := prover.Choose(ctx, qemu.ModeAuto)
	if err != nil || choice.Accelerator == qemu.KVM {
		return err
	}
	d.replace = append(d.replace, automatic, emulated)
	d.say("machines are emulated, so spec.kvm.k8sKVM.acceleration becomes tcg: %s", choice.Reason)
	if cpus := runtime.NumCPU(); cpus < enoughCPUs {
		d.replace = append(d.replace, twoWorkers, oneWorker, twoMachines, oneMachine)
		d.config.Spec.Cluster.Workers, d.config.Spec.KVM.Workers = d.config.Spec.Cluster.Workers[:1], d.config.Spec.KVM.Workers[:1]
		d.say("this machine has %d CPUs, too few for two emulated workers, so the workload cluster has one", cpus)
	}
	return nil
}

// manifest returns the example with what chooseMachines has changed.
func (d *demo) manifest() (string, error) {
	text, err := os.ReadFile(d.example("kvmconfig.yaml"))
	return strings.NewReplacer(d.replace...).Replace(string(text)), err
}

// end stops everything. After a success it removes every trace, and after a failure it keeps the logs.
func (d *demo) end(success bool) error {
	d.say("stopping")
	var errs []error
	if d.stage != nil {
		errs = append(errs, d.stage.Stop(), detachAll(d.state))
	}
	if success {
		errs = append(errs, d.state.clear())
		d.say("everything is stopped and %s is removed", d.state.dir)
	} else {
		errs = append(errs, d.state.keepLogs())
		d.say("everything is stopped; the logs are kept in %s until the next demo or `make demo-down`", d.state.dir)
	}
	return errors.Join(errs...)
}

// detachAll gives back the loop devices of a demo.
func detachAll(s state) error {
	ctx, cancel := context.WithTimeout(context.Background(), explainTimeout)
	defer cancel()
	return blockdevice.DetachBelow(ctx, s.dir)
}

func (d *demo) namespace() string { return key.Namespace(d.config.Spec.Cluster.ID) }

func (d *demo) example(name string) string { return filepath.Join(d.state.root, examples, name) }

func (d *demo) say(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// copyPrivate copies a file that holds a key.
func copyPrivate(to, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}
