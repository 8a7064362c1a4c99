package kubevirt_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/kubevirt"
)

func TestAVirtualMachineIsAcceptedUnchangedAndRuns(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	stored := p.create()
	for _, difference := range missing(p.object(machineYAML).Object, stored.Object, "") {
		t.Errorf("KubeVirt changes what the operator writes: %s", difference)
	}
	for _, path := range []string{"firmware.uuid", "firmware.serial", "machine.type"} {
		if field(stored, "spec.template.spec.domain."+path) == nil {
			t.Errorf("KubeVirt adds no %s, the spec is %v", path, stored.Object["spec"])
		}
	}
	machine := p.awaitStatus("Running")
	if got := field(machine, "status.conditions[Ready]"); got != "True" {
		p.await(kubevirt.VirtualMachineKind, "status.conditions[Ready]", "True")
	}
	instance := p.await(kubevirt.InstanceKind, "status.conditions[AgentConnected]", "True")
	interfaces := field(instance, "status.interfaces").([]any)
	if len(interfaces) != 1 {
		t.Fatalf("there are %d interfaces: %v", len(interfaces), interfaces)
	}
	first := interfaces[0].(map[string]any)
	address, _ := first["ipAddress"].(string)
	if _, err := netip.ParseAddr(address); err != nil || first["mac"] != mac || first["linkState"] != "up" {
		t.Errorf("the interface is %v", first)
	}
	if node, _ := field(instance, "status.nodeName").(string); node == "" {
		t.Error("the instance is on no node")
	}
}

func TestStopAndStartBySubresources(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.create()
	p.awaitStatus("Running")
	first := p.await(kubevirt.InstanceKind, "status.phase", "Running").GetUID()
	if err := virt.StopMachine(t.Context(), p.machine); err != nil {
		t.Fatal(err)
	}
	if got := field(p.awaitStatus("Stopped"), "spec.runStrategy"); got != "Halted" {
		t.Errorf("the run strategy of a stopped machine is %v", got)
	}
	if err := virt.StartMachine(t.Context(), p.machine); err != nil {
		t.Fatal(err)
	}
	if got := field(p.awaitStatus("Running"), "spec.runStrategy"); got != "Always" {
		t.Errorf("the run strategy of a started machine is %v", got)
	}
	if second := p.await(kubevirt.InstanceKind, "status.phase", "Running").GetUID(); second == first {
		t.Error("the instance is the one from before the stop")
	}
}

func TestAVolumeIsPluggedInAndOut(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.create()
	claim := p.object(claimYAML, "metadata.name=data")
	if err := virt.Client().Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	p.awaitStatus("Running")
	if err := virt.AddVolume(t.Context(), p.machine, "data", "data"); err != nil {
		t.Fatal(err)
	}
	p.eventually(func(ctx context.Context) error {
		instance, err := p.get(ctx, kubevirt.InstanceKind)
		if err != nil {
			return err
		}
		for _, item := range field(instance, "status.volumeStatus").([]any) {
			if volume := item.(map[string]any); volume["name"] == "data" && volume["phase"] == "Ready" {
				return nil
			}
		}
		return fmt.Errorf("the volume is not ready: %v", instance.Object["status"])
	})
	machine, err := p.get(t.Context(), kubevirt.VirtualMachineKind)
	if err != nil {
		t.Fatal(err)
	}
	if volumes := field(machine, "spec.template.spec.volumes").([]any); len(volumes) != 2 {
		t.Errorf("the virtual machine has volumes %v", volumes)
	}
	if err := virt.RemoveVolume(t.Context(), p.machine, "data"); err != nil {
		t.Fatal(err)
	}
	p.eventually(func(ctx context.Context) error {
		instance, err := p.get(ctx, kubevirt.InstanceKind)
		if err != nil {
			return err
		}
		if volumes := field(instance, "status.volumeStatus").([]any); len(volumes) != 1 {
			return fmt.Errorf("the volume is still there: %v", volumes)
		}
		return nil
	})
}

func TestDeletionWaitsForTheGuest(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.create()
	p.awaitStatus("Running")
	virt.Handler().HoldEnd(p.machine)
	p.delete()
	p.awaitStatus("Terminating")
	if instance, err := p.get(t.Context(), kubevirt.InstanceKind); err != nil || field(instance, "status.phase") != "Running" {
		t.Errorf("the instance of a guest that does not end is %v (%v)", instance, err)
	}
	virt.Handler().ReleaseEnd(p.machine)
	p.eventually(p.gone)
}

func TestStatusFromOtherAccountsIsReverted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.create()
	instance := p.await(kubevirt.InstanceKind, "status.conditions[AgentConnected]", "True")
	p.eventually(func(ctx context.Context) error {
		patch := []byte(`{"metadata":{"annotations":{"test":"written"}},"status":{"phase":"Failed"}}`)
		return virt.Client().Patch(ctx, instance, client.RawPatch(types.MergePatchType, patch))
	})
	if got, phase := instance.GetAnnotations()["test"], field(instance, "status.phase"); got != "written" || phase != "Running" {
		t.Errorf("the annotation is %q and the phase %v after a write by an administrator", got, phase)
	}
}
