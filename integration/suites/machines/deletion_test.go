package machines_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// TestDeletionWaitsForTheGuestBeforeItsDisks is scenario 12 and K11: a guest that does not end keeps its claims, and the
// Machine says what it waits for.
func TestDeletionWaitsForTheGuestBeforeItsDisks(t *testing.T) {
	p := together(t)
	n := p.network("front", "{vlan: 7}")
	m := p.machine("vm", "{template: small, disks: [{name: data, size: 1Gi}], networks: [{name: eth0, networkName: front}]}")
	p.await(m, runs)
	p.until(func() error { return attached(n, "vm/eth0") })
	// Simulated nodes end guests at once, so finalizers of another client hold the guest and its VirtualMachine.
	vm, vmi := p.vm(m), p.vmi(m)
	p.hold(vm, true)
	p.hold(vmi, true)
	p.delete(m)
	p.await(m, want{phase: v1alpha1.PhaseRunning, ready: v1alpha1.ReasonTerminating})
	p.until(func() error {
		if p.vm(m).DeletionTimestamp == nil || p.vmi(m).DeletionTimestamp == nil {
			return errors.New("the guest is not being deleted")
		}
		return nil
	})
	p.stays(m)
	p.disksStay(2)
	p.hold(vmi, false)
	p.until(func() error { return gone(vmi) })
	p.stays(m)
	p.disksStay(2)
	released := time.Now()
	p.hold(vm, false)
	p.until(func() error { return gone(m.DeepCopy()) })
	t.Logf("the Machine is gone %s after the finalizer of its guest was removed", time.Since(released).Round(time.Millisecond))
	p.until(func() error { return p.nothing(m) })
	p.until(func() error { return attached(n) })
	if err := read(p, "front", &v1alpha1.NetworkConfiguration{}); err != nil {
		t.Errorf("the shared network: %s", err)
	}
}

// hold adds or removes a finalizer of another client.
func (p *place) hold(object client.Object, held bool) {
	p.Helper()
	const finalizer = "test.kvm-operator/hold"
	change(p, object, func(o client.Object) {
		if held {
			controllerutil.AddFinalizer(o, finalizer)
		} else {
			controllerutil.RemoveFinalizer(o, finalizer)
		}
	})
}

// disksStay fails the test unless there are n claims, none of which is being deleted.
func (p *place) disksStay(n int) {
	p.Helper()
	claims := &corev1.PersistentVolumeClaimList{}
	if err := api.List(p.Context(), claims, inNamespace(p)); err != nil {
		p.Fatal(err)
	}
	for _, c := range claims.Items {
		if c.DeletionTimestamp != nil {
			p.Errorf("claim %s is being deleted while the guest, or its VirtualMachine, is there", c.Name)
		}
	}
	if len(claims.Items) != n {
		p.Errorf("there are %d claims", len(claims.Items))
	}
}

// TestAMachineIsDeletedInEveryPhase is the second part of K11.
func TestAMachineIsDeletedInEveryPhase(t *testing.T) {
	p := together(t)
	held := &v1alpha1.Machine{}
	held.Namespace, held.Name = p.namespace, "creating"
	kube.Handler().HoldBoot(key(held))
	crashing := held.DeepCopy()
	crashing.Name = "crashing"
	kube.Handler().Crash(key(crashing), 100)
	for name, c := range map[string]struct {
		spec string
		want want
	}{
		"pending":  {"{template: small, cloudInit: {secretRef: {name: none}}}", want{phase: v1alpha1.PhasePending}},
		"invalid":  {"{template: huge}", want{phase: v1alpha1.PhaseFailed}},
		"refused":  {"{template: small, domain: {machine: {type: pc-i440fx}}}", want{phase: v1alpha1.PhaseCreating}},
		"creating": {"{template: small}", want{phase: v1alpha1.PhaseCreating}},
		"crashing": {"{template: small}", want{phase: v1alpha1.PhaseFailed}},
		"running":  {"{template: small}", runs},
		"stopped":  {"{template: small}", runs},
	} {
		m := p.machine(name, c.spec)
		p.await(m, c.want)
		if name == "stopped" {
			p.stop(m)
		}
		p.delete(m)
		p.until(func() error { return gone(m.DeepCopy()) })
		p.until(func() error { return p.nothing(m) })
	}
}

// TestTheFinalizerOfVitistacksOperatorGoesToo is scenario 21.
func TestTheFinalizerOfVitistacksOperatorGoesToo(t *testing.T) {
	p := together(t)
	m := p.machine("vm", "{template: small}", func(m *v1alpha1.Machine) { m.Finalizers = []string{v1alpha1.FormerFinalizer} })
	p.await(m, runs)
	if !slices.Contains(m.Finalizers, v1alpha1.Finalizer) {
		t.Errorf("the finalizers are %v", m.Finalizers)
	}
	p.delete(m)
	p.until(func() error { return gone(m.DeepCopy()) })
}

// TestANetworkServesTheOtherMachineAfterOneIsDeleted is scenario 22.
func TestANetworkServesTheOtherMachineAfterOneIsDeleted(t *testing.T) {
	p := together(t)
	n := p.network("front", "{vlan: 8, bridge: br1}")
	const spec = "{template: small, networks: [{name: eth0, networkName: front}]}"
	first, second := p.machine("one", spec), p.machine("two", spec)
	p.await(first, runs)
	p.await(second, runs)
	p.until(func() error { return attached(n, "one/eth0", "two/eth0") })
	uid := p.vmi(second).UID
	p.delete(first)
	p.until(func() error { return gone(first.DeepCopy()) })
	p.until(func() error { return attached(n, "two/eth0") })
	p.await(second, runs)
	if p.vmi(second).UID != uid {
		t.Error("the other guest was replaced")
	}
	p.until(func() error { return p.attachment("front") })
	p.stays(second)
}

// attached returns an error unless the status of a NetworkConfiguration has these interfaces, as "machine/interface", each
// with its address.
func attached(n *v1alpha1.NetworkConfiguration, interfaces ...string) error {
	if err := api.Get(context.Background(), key(n), n); err != nil {
		return err
	}
	var got []string
	for _, a := range n.Status.Attachments {
		if a.MACAddress == "" {
			return fmt.Errorf("%s has no MAC address", a.Machine)
		}
		got = append(got, a.Machine+"/"+a.Interface)
	}
	slices.Sort(got)
	if !slices.Equal(got, interfaces) {
		return fmt.Errorf("the attachments of %s are %v, want %v", n.Name, got, interfaces)
	}
	return nil
}

// TestAMachineGoesWhenItsVirtualMachineIsGoneAlready: a user has deleted the VirtualMachine before the Machine.
func TestAMachineGoesWhenItsVirtualMachineIsGoneAlready(t *testing.T) {
	p := together(t)
	m := p.machine("vm", "{template: small}")
	p.await(m, runs)
	p.delete(p.vm(m))
	p.delete(m)
	p.until(func() error { return gone(m.DeepCopy()) })
	p.until(func() error { return gone(&kubevirtv1.VirtualMachine{ObjectMeta: *m.ObjectMeta.DeepCopy()}) })
	p.until(func() error { return p.nothing(m) })
}
