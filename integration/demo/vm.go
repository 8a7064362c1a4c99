package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/integration/harness/blockdevice"
	"github.com/kvm-operator/kvm-operator/integration/harness/stage"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// dataClass is the class of the volume for the firmware's variables.
const dataClass = "debian-data"

// machineDemo is a demo of one VirtualMachine.
type machineDemo struct {
	*demo
	vm   *v1.VirtualMachine
	seen map[string]string
}

// upMachine runs the demo of a VirtualMachine from start to end. An interrupt is not an error.
func upMachine(ctx context.Context, s state, timeout time.Duration, exit bool) (err error) {
	if err := check(s, os.Geteuid()); err != nil {
		return err
	}
	if err := s.take(); err != nil {
		return err
	}
	d := &machineDemo{demo: newDemo(s), seen: map[string]string{}}
	defer func() {
		if ctx.Err() != nil {
			err = nil
		}
		err = errors.Join(err, d.end(err == nil))
	}()
	if err := d.start(ctx); err != nil {
		return err
	}
	if err := d.work(ctx, timeout); err != nil {
		return d.explain(ctx, err)
	}
	d.say("done: the machine runs, and its guest agent answers")
	if exit {
		d.say("to keep it and try more: make demo-vm KEEP=1")
		return nil
	}
	fmt.Print(d.hints())
	return d.follow(ctx, func(v1.VirtualMachineStatus) bool { return false })
}

// start sets up the management cluster with the operator.
func (d *machineDemo) start(ctx context.Context) (err error) {
	d.say("without KVM this takes about four minutes on two cores that have nothing else to do; Ctrl-C stops it at any moment and cleans up")
	d.stage, err = stage.Start(ctx, stage.Options{
		Root: d.state.root, Dir: d.state.cluster(), Workers: 1, Say: d.say, VirtualMachines: true,
		Values: []string{"virtualMachines.dataStorageClass=" + dataClass},
	})
	if err != nil {
		return err
	}
	return d.connect(ctx, v1.AddToScheme)
}

// work makes the machine and waits until it has booted.
func (d *machineDemo) work(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the machine has not booted within %s", timeout))
	defer cancel()
	text, err := os.ReadFile(d.example("virtualmachine.yaml"))
	if err != nil {
		return err
	}
	d.vm = &v1.VirtualMachine{}
	if err := yaml.Unmarshal(text, d.vm); err != nil {
		return err
	}
	if err := d.makeVolumes(ctx); err != nil {
		return err
	}
	d.say("applying %s/virtualmachine.yaml", examples)
	if err := d.stage.Apply(ctx, string(text)); err != nil {
		return err
	}
	return d.follow(ctx, func(s v1.VirtualMachineStatus) bool {
		return conditionOf(s, "Booted").Status == metav1.ConditionTrue
	})
}

// makeVolumes makes the volumes of the machine: a copy of the image as its disk, and a directory.
func (d *machineDemo) makeVolumes(ctx context.Context) error {
	image, err := filepath.EvalSymlinks(filepath.Join(d.state.root, ".tools", "guest", "cloud.img"))
	if err != nil {
		return fmt.Errorf("the guest image is missing: %w (run `make machine-tools`)", err)
	}
	disk, data := filepath.Join(d.state.cluster(), "debian.img"), filepath.Join(d.state.cluster(), dataClass)
	d.say("copying the disk of the machine")
	if err := errors.Join(blockdevice.Copy(ctx, image, disk), os.Mkdir(data, 0o700)); err != nil {
		return err
	}
	device, err := blockdevice.Attach(ctx, disk)
	if err != nil {
		return err
	}
	for _, volume := range []any{device.Volume("debian", "900Mi"), blockdevice.Directory(dataClass, data)} {
		manifest, err := yaml.Marshal(volume)
		if err != nil {
			return err
		}
		if err := d.stage.Apply(ctx, string(manifest)); err != nil {
			return err
		}
	}
	return nil
}

// follow prints what changes of the machine until done.
func (d *machineDemo) follow(ctx context.Context, done func(v1.VirtualMachineStatus) bool) error {
	ticker := time.NewTicker(observeInterval)
	defer ticker.Stop()
	for {
		vm := &v1.VirtualMachine{}
		err := d.client.Get(ctx, client.ObjectKeyFromObject(d.vm), vm)
		if err == nil {
			d.vm.Status = vm.Status
			d.tell(vm.Status)
			if done(vm.Status) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}

// tell prints each fact that differs from the last one.
func (d *machineDemo) tell(s v1.VirtualMachineStatus) {
	for _, fact := range []struct{ name, text string }{
		{"phase", string(s.Phase)},
		{"has", fmt.Sprintf("%d CPUs, %s of memory", s.CPUs, s.RAM)},
		{"Ready", sentence(conditionOf(s, "Ready"))},
		{"Booted", sentence(conditionOf(s, "Booted"))},
		{"RestartRequired", sentence(conditionOf(s, "RestartRequired"))},
	} {
		if d.seen[fact.name] != fact.text && fact.text != "" {
			d.say("%s: %s", fact.name, fact.text)
		}
		d.seen[fact.name] = fact.text
	}
}

func sentence(c metav1.Condition) string {
	if c.Type == "" {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message))
}

func conditionOf(s v1.VirtualMachineStatus, name string) metav1.Condition {
	for _, c := range s.Conditions {
		if c.Type == name {
			return c
		}
	}
	return metav1.Condition{}
}

// explain adds to a cause what is known of a machine that does not boot. An interrupt needs no explanation.
func (d *machineDemo) explain(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return cause
	}
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	var text strings.Builder
	fmt.Fprintf(&text, "VirtualMachine %s does not get on: %s", d.vm.Name, strings.ReplaceAll(cause.Error(), "\n", ": "))
	for _, c := range d.vm.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			fmt.Fprintf(&text, "\n  condition %s is %s", c.Type, sentence(c))
		}
	}
	console, err := d.stage.Cluster.Kubectl(ctx, "logs", virtualmachine.PodName(d.vm.Name), "--tail="+consoleLines)
	if err != nil {
		console = err.Error()
	}
	fmt.Fprintf(&text, "\nend of the console:\n%s\nend of the operator's log:\n%s", console, d.stage.OperatorLog(ctx))
	return errors.New(text.String())
}

// hints returns what to try with a running demo. The commands can be copied.
func (d *machineDemo) hints() string {
	const vms, pod = "vms.vmoperator.jdrupes.org", "debian-0"
	var text strings.Builder
	fmt.Fprintf(&text, "\nTry in another terminal, which needs:\n\n    cd %s && export PATH=$PWD/.tools:$PATH\n", d.state.root)
	section(&text, "The machine:", d.state.management(), []hint{
		{"kubectl get " + vms + " -o wide", ""},
		{"kubectl exec -it " + pod + " -- " + virtualmachine.Binary + " runner console", "its console: user debian, password demo; Ctrl-] leaves"},
		{"kubectl patch " + vms + ` debian --type=merge -p '{"spec":{"vm":{"currentCpus":3}}}'`, "two CPUs more, at once"},
		{"kubectl get secret debian-display-secret --template '{{index .data \"display-password\" | base64decode}}'; kubectl port-forward " + pod + " 5900", "its display: then remote-viewer spice://localhost:5900"},
		{"kubectl patch " + vms + ` debian --type=merge -p '{"spec":{"vm":{"state":"Stopped"}}}'`, "its end, in order"},
		{"kubectl delete " + vms + " debian && kubectl get pvc", "its disk stays"},
	})
	fmt.Fprintf(&text, "\nCtrl-C stops everything and leaves nothing behind. Until then, what changes is shown here:\n\n")
	return text.String()
}
