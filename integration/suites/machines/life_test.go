package machines_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// phases follows the phases of the Machines of a namespace from now on.
func (p *place) phases() func() []string {
	p.Helper()
	w, err := api.Watch(p.Context(), &v1alpha1.MachineList{}, client.InNamespace(p.namespace))
	if err != nil {
		p.Fatal(err)
	}
	var mu sync.Mutex
	var seen []string
	var watching sync.WaitGroup
	watching.Go(func() {
		for event := range w.ResultChan() {
			m, ok := event.Object.(*v1alpha1.Machine)
			if !ok || event.Type == watch.Deleted {
				continue
			}
			mu.Lock()
			if n := len(seen); m.Status.Phase != "" && (n == 0 || seen[n-1] != m.Status.Phase) {
				seen = append(seen, m.Status.Phase)
			}
			mu.Unlock()
		}
	})
	p.Cleanup(func() {
		w.Stop()
		watching.Wait()
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// TestAMachineGoesThroughItsPhases is scenario 9: created, running with node and address, stopped, started.
func TestAMachineGoesThroughItsPhases(t *testing.T) {
	p := together(t)
	phases := p.phases()
	m := &v1alpha1.Machine{}
	m.Namespace, m.Name = p.namespace, "vm"
	kube.Handler().HoldBoot(key(m))
	kube.Handler().HoldAddresses(key(m))
	m = p.machine("vm", "{template: small}")
	p.await(m, want{phase: v1alpha1.PhaseCreating, ready: v1alpha1.ReasonCreating, others: []string{"VirtualMachineReady=True/VMCreated", "StorageReady=True/PVCBound"}})
	p.until(func() error {
		if get(p, m.Name, m); m.Status.VMName != "vm" || m.Status.VMIName != "vm" {
			return fmt.Errorf("the names are %q and %q", m.Status.VMName, m.Status.VMIName)
		}
		return nil
	})
	kube.Handler().ReleaseBoot(key(m))
	p.await(m, runs)
	if len(m.Status.IPAddresses) > 0 {
		t.Errorf("there are addresses %v before the guest has any", m.Status.IPAddresses)
	}
	kube.Handler().ReleaseAddresses(key(m))
	p.until(func() error { return p.placed(m) })
	if len(m.Status.NetworkInterfaces) != 1 || m.Status.NetworkInterfaces[0].MACAddress != p.vm(m).Spec.Template.Spec.Domain.Devices.Interfaces[0].MacAddress {
		t.Errorf("the interfaces are %+v", m.Status.NetworkInterfaces)
	}
	if len(m.Status.Disks) != 1 || m.Status.Disks[0].PVCName != "vm-root" || m.Status.OperatingSystem == "" {
		t.Errorf("the disks are %+v, and the system is %q", m.Status.Disks, m.Status.OperatingSystem)
	}
	kube.Handler().SetAddresses(key(m), "default", "10.9.8.7", "fd00::7", "fe80::1")
	p.until(func() error {
		if get(p, m.Name, m); !slices.Equal(m.Status.IPAddresses, []string{"10.9.8.7", "fd00::7"}) || !slices.Equal(m.Status.IPv6Addresses, []string{"fd00::7"}) {
			return fmt.Errorf("the addresses are %v", m.Status.IPAddresses)
		}
		return nil
	})
	p.stop(m)
	p.start(m)
	if want, got := []string{"Creating", "Running", "Stopped", "Creating", "Running"}, phases(); !slices.Equal(got, want) && !slices.Equal(got, append([]string{"Pending"}, want...)) {
		t.Errorf("the phases were %v, want %v", got, want)
	}
}

// placed returns an error unless the status of a Machine has the node and an address of its guest.
func (p *place) placed(m *v1alpha1.Machine) error {
	get(p, m.Name, m)
	vmi := p.vmi(m)
	if m.Status.NodeName == "" || m.Status.NodeName != vmi.Status.NodeName || len(m.Status.IPAddresses) == 0 {
		return fmt.Errorf("the node is %q of %q, and the addresses are %v", m.Status.NodeName, vmi.Status.NodeName, m.Status.IPAddresses)
	}
	_, err := netip.ParseAddr(m.Status.IPAddresses[0])
	return err
}

// stop stops a guest as a user of KubeVirt does, and waits until the Machine says so.
func (p *place) stop(m *v1alpha1.Machine) {
	p.Helper()
	if err := kube.StopMachine(p.Context(), key(m)); err != nil {
		p.Fatal(err)
	}
	p.await(m, want{phase: v1alpha1.PhaseStopped, ready: v1alpha1.ReasonStopped})
	p.until(func() error {
		if get(p, m.Name, m); m.Status.NodeName != "" || m.Status.VMIName != "" || len(m.Status.IPAddresses) > 0 {
			return fmt.Errorf("the status has node %q, guest %q and addresses %v", m.Status.NodeName, m.Status.VMIName, m.Status.IPAddresses)
		}
		return nil
	})
}

// start starts a guest as a user of KubeVirt does, and waits until the Machine runs.
func (p *place) start(m *v1alpha1.Machine) {
	p.Helper()
	if err := kube.StartMachine(p.Context(), key(m)); err != nil {
		p.Fatal(err)
	}
	p.await(m, runs)
}

// TestAUsersStopIsLeftAlone is scenario 10: neither time nor an edit of the Machine starts a guest that was stopped.
func TestAUsersStopIsLeftAlone(t *testing.T) {
	p := together(t)
	m := p.machine("vm", "{template: small}")
	p.await(m, runs)
	p.stop(m)
	p.stays(m)
	change(p, m, func(m *v1alpha1.Machine) { m.Spec.Resources.CPU.Sockets = 2 })
	p.until(func() error {
		if sockets := p.vm(m).Spec.Template.Spec.Domain.CPU.Sockets; sockets != 2 {
			return fmt.Errorf("there are %d sockets", sockets)
		}
		return nil
	})
	p.stays(m)
	if strategy, _ := p.vm(m).RunStrategy(); strategy != kubevirtv1.RunStrategyHalted {
		t.Errorf("the run strategy is %s", strategy)
	}
	p.await(m, want{phase: v1alpha1.PhaseStopped, ready: v1alpha1.ReasonStopped})
	p.start(m)
	if sockets := p.vmi(m).Spec.Domain.CPU.Sockets; sockets != 2 {
		t.Errorf("the guest has %d sockets", sockets)
	}
}

// TestAGuestThatCrashesAgainAndAgainFailsAndRecovers is scenario 11 and K9.
func TestAGuestThatCrashesAgainAndAgainFailsAndRecovers(t *testing.T) {
	p := together(t)
	m := &v1alpha1.Machine{}
	m.Namespace, m.Name = p.namespace, "vm"
	// KubeVirt waits longer with each failure: a third one takes minutes.
	kube.Handler().Crash(key(m), 2)
	m = p.machine("vm", "{template: small}")
	p.await(m, want{phase: v1alpha1.PhaseFailed, ready: v1alpha1.VMFailed, others: []string{"VirtualMachineReady=False/VMFailed"}})
	if m.Status.FailureReason != v1alpha1.VMFailed || m.Status.FailureMessage == "" {
		t.Errorf("the failure is %q: %q", m.Status.FailureReason, m.Status.FailureMessage)
	}
	p.longUntil(func() error {
		get(p, m.Name, m)
		return runs.shows(m)
	})
	if m.Status.FailureReason != "" || m.Status.FailureMessage != "" {
		t.Errorf("the failure stays: %q: %q", m.Status.FailureReason, m.Status.FailureMessage)
	}
}

// TestAPausedGuestIsRunningAndNotReady is a row of the table of phases.
func TestAPausedGuestIsRunningAndNotReady(t *testing.T) {
	p := together(t)
	m := p.machine("vm", "{template: small}")
	p.await(m, runs)
	if err := kube.Handler().Pause(t.Context(), key(m)); err != nil {
		t.Fatal(err)
	}
	p.await(m, want{phase: v1alpha1.PhaseRunning, ready: v1alpha1.ReasonPaused})
	if m.Status.State != "Paused" {
		t.Errorf("the state is %q", m.Status.State)
	}
	if err := kube.Handler().Unpause(t.Context(), key(m)); err != nil {
		t.Fatal(err)
	}
	p.await(m, runs)
}

// TestAVirtualMachineThatIsDeletedComesBackWithItsAddress is scenario 15: the MAC address is the same in the next one, and
// after a restart of the operator, which is part of K1.
func TestAVirtualMachineThatIsDeletedComesBackWithItsAddress(t *testing.T) {
	p := together(t)
	m := p.machine("vm", "{template: small}")
	other := p.machine("vm2", "{template: small}")
	p.await(m, runs)
	p.await(other, runs)
	mac := func(m *v1alpha1.Machine) string {
		return p.vm(m).Spec.Template.Spec.Domain.Devices.Interfaces[0].MacAddress
	}
	before := mac(m)
	if before == mac(other) {
		t.Errorf("two Machines have the address %s", before)
	}
	first := p.vm(m)
	p.delete(first)
	p.until(func() error {
		vm := &kubevirtv1.VirtualMachine{}
		if err := read(p, m.Name, vm); err != nil {
			return err
		}
		if vm.UID == first.UID {
			return errors.New("it is the first one still")
		}
		return nil
	})
	p.await(m, runs)
	if after := mac(m); after != before {
		t.Errorf("the address was %s and is %s", before, after)
	}
}

// TestAnEditReachesTheVirtualMachineAndNothingIsWrittenAgain is scenario 16.
func TestAnEditReachesTheVirtualMachineAndNothingIsWrittenAgain(t *testing.T) {
	p := together(t)
	m := p.machine("vm", "{template: small}")
	p.await(m, runs)
	p.stays(m)
	change(p, m, func(m *v1alpha1.Machine) { m.Spec.Resources.CPU.Cores, m.Spec.Resources.Memory.Size = 2, "3Gi" })
	p.until(func() error {
		domain := p.vm(m).Spec.Template.Spec.Domain
		if domain.CPU.Cores != 2 || domain.Memory.Guest.String() != "3Gi" {
			return fmt.Errorf("there are %d cores and %s", domain.CPU.Cores, domain.Memory.Guest)
		}
		return nil
	})
	p.until(func() error {
		if get(p, m.Name, m); m.Status.ObservedGeneration != m.Generation {
			return errors.New("the edit is not observed")
		}
		ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)
		if want := "restart"; ready == nil || !containsFold(ready.Message, want) {
			return fmt.Errorf("Ready does not speak of a %s: %s", want, describe(m))
		}
		return nil
	})
	p.stays(m)
	if domain := p.vm(m).Spec.Template.Spec.Domain; domain.Firmware == nil || domain.Firmware.UUID == "" || domain.Firmware.Serial == "" {
		t.Errorf("what KubeVirt added is gone: %+v", domain.Firmware)
	}
}
