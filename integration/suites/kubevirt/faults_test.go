package kubevirt_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/kubevirt"
)

func TestAMachineWithoutSpaceWaitsForANode(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.create("spec.template.spec.domain.memory={guest: 100Gi}")
	p.awaitStatus("ErrorUnschedulable")
	if _, err := virt.AddNode(t.Context(), "256Gi"); err != nil {
		t.Fatal(err)
	}
	p.awaitStatus("Running")
}

func TestACrashLoopEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	virt.Handler().Crash(p.machine, 1)
	p.create()
	machine := p.awaitStatus("CrashLoopBackOff")
	if count, _ := field(machine, "status.startFailure.consecutiveFailCount").(int64); count < 1 {
		t.Errorf("the status of a machine whose guest crashes is %v", machine.Object["status"])
	}
	p.awaitStatus("Running")
}

func TestAGuestThatPowersItselfOffIsStartedAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.create()
	first := p.await(kubevirt.InstanceKind, "status.phase", kubevirt.Running).GetUID()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := virt.Handler().PowerOff(ctx, p.machine); err != nil {
		t.Fatal(err)
	}
	p.eventually(func(ctx context.Context) error {
		instance, err := p.get(ctx, kubevirt.InstanceKind)
		if err == nil && (instance.GetUID() == first || field(instance, "status.phase") != kubevirt.Running) {
			err = fmt.Errorf("the instance is %s, as before the power-off, or does not run", instance.GetUID())
		}
		return err
	})
}

func TestPause(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.create()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := virt.Handler().Pause(ctx, p.machine); err != nil {
		t.Fatal(err)
	}
	p.awaitStatus("Paused")
	if err := virt.Handler().Unpause(ctx, p.machine); err != nil {
		t.Fatal(err)
	}
	p.awaitStatus("Running")
}

func TestAddressesComeLateAndChange(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	virt.Handler().HoldAddresses(p.machine)
	p.create()
	p.awaitStatus("Running")
	p.awaitAddresses(nil)
	virt.Handler().SetAddresses(p.machine, "default", "10.9.8.7", "fd00::7")
	virt.Handler().ReleaseAddresses(p.machine)
	p.awaitAddresses([]any{"10.9.8.7", "fd00::7"})
	virt.Handler().SetAddresses(p.machine, "default", "10.9.8.8")
	p.awaitAddresses([]any{"10.9.8.8"})
}

// awaitAddresses waits until the only interface of the machine's instance has addresses. nil is none.
func (p *place) awaitAddresses(want []any) {
	p.t.Helper()
	p.eventually(func(ctx context.Context) error {
		instance, err := p.get(ctx, kubevirt.InstanceKind)
		if err != nil {
			return err
		}
		interfaces, _ := field(instance, "status.interfaces").([]any)
		if len(interfaces) != 1 {
			return fmt.Errorf("the interfaces are %v", interfaces)
		}
		if got, _ := interfaces[0].(map[string]any)["ipAddresses"].([]any); !reflect.DeepEqual(got, want) {
			return fmt.Errorf("the addresses are %v, want %v", got, want)
		}
		return nil
	})
}

func TestAGuestThatDoesNotBootIsStarting(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	virt.Handler().HoldBoot(p.machine)
	p.create()
	p.await(kubevirt.InstanceKind, "status.phase", kubevirt.Scheduled)
	p.awaitStatus("Starting")
	virt.Handler().ReleaseBoot(p.machine)
	p.awaitStatus("Running")
}

// It runs alone because no webhook answers meanwhile.
func TestWithoutVirtAPINothingIsAccepted(t *testing.T) {
	p := newPlace(t)
	p.create()
	p.awaitStatus("Running")
	if err := virt.StopAPI(); err != nil {
		t.Fatal(err)
	}
	machine, err := p.get(t.Context(), kubevirt.VirtualMachineKind)
	if err != nil {
		t.Fatal(err)
	}
	machine.SetLabels(map[string]string{"edited": "true"})
	if err := virt.Client().Update(t.Context(), machine); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("a change without virt-api ends with %v", err)
	}
	if err := virt.StopMachine(t.Context(), p.machine); err == nil {
		t.Error("a subresource answers without virt-api")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := virt.StartAPI(ctx); err != nil {
		t.Fatal(err)
	}
	p.eventually(func(ctx context.Context) error { return virt.Client().Update(ctx, machine) })
}

// It runs alone because a lost node is cordoned by virt-controller for all.
func TestALostNodeMakesItsMachineUnready(t *testing.T) {
	p := newPlace(t)
	node, err := virt.AddNode(t.Context(), "64Gi")
	if err != nil {
		t.Fatal(err)
	}
	p.create(`spec.template.spec.nodeSelector={kubernetes.io/hostname: ` + node + `}`)
	p.awaitStatus("Running")
	p.await(kubevirt.VirtualMachineKind, "status.conditions[Ready]", "True")
	if err := virt.LoseNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	p.await(kubevirt.VirtualMachineKind, "status.conditions[Ready]", "False")
	if err := virt.FindNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	p.await(kubevirt.VirtualMachineKind, "status.conditions[Ready]", "True")
}

// It runs alone because KubeVirt is absent meanwhile.
func TestKubeVirtIsRemovedAndInstalledAgain(t *testing.T) {
	p := newPlace(t)
	p.create()
	p.awaitStatus("Running")
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	began := time.Now()
	if err := virt.Uninstall(ctx); err != nil {
		t.Fatal(err)
	}
	removed := time.Now()
	if _, err := p.get(ctx, kubevirt.VirtualMachineKind); err == nil {
		t.Error("the virtual machine is still there")
	}
	if err := virt.Install(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("KubeVirt was removed in %v and installed in %v", removed.Sub(began), time.Since(removed))
	if err := virt.Client().Create(ctx, p.object(machineYAML)); err != nil {
		t.Fatal(err)
	}
	p.awaitStatus("Running")
}
