package machines_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// awaitRestart waits until a Machine awaits a restart for the changes, and returns the value of the annotation that approves
// it.
func (p *place) awaitRestart(m *v1alpha1.Machine, changes ...string) (approval string) {
	p.Helper()
	p.until(func() error {
		get(p, m.Name, m)
		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionAwaitingRestart)
		if c == nil || c.Status != "True" || c.Reason != v1alpha1.ReasonApprovalNeeded || c.ObservedGeneration != m.Generation {
			return errors.New("no restart is awaited: " + describe(m))
		}
		for _, change := range changes {
			if !strings.Contains(c.Message, change) {
				return fmt.Errorf("it does not name %q: %s", change, c.Message)
			}
		}
		_, after, found := strings.Cut(c.Message, v1alpha1.AnnotationApproveRestart+"=")
		if !found {
			return errors.New("it does not say how to approve: " + c.Message)
		}
		approval, _, _ = strings.Cut(after, ";")
		return nil
	})
	return approval
}

// approve sets the annotation.
func (p *place) approve(m *v1alpha1.Machine, approval string) {
	p.Helper()
	change(p, m, func(m *v1alpha1.Machine) {
		m.Annotations = map[string]string{v1alpha1.AnnotationApproveRestart: approval}
	})
}

// restarted waits until another guest than the one before runs, and nothing waits.
func (p *place) restarted(m *v1alpha1.Machine, before *kubevirtv1.VirtualMachineInstance) *kubevirtv1.VirtualMachineInstance {
	p.Helper()
	p.until(func() error {
		vmi := &kubevirtv1.VirtualMachineInstance{}
		if err := read(p, m.Name, vmi); err != nil {
			return err
		}
		if vmi.UID == before.UID || vmi.Status.Phase != kubevirtv1.Running {
			return fmt.Errorf("guest %s is %s", vmi.UID, vmi.Status.Phase)
		}
		return nil
	})
	p.await(m, runs)
	p.until(func() error {
		if get(p, m.Name, m); meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionAwaitingRestart) != nil {
			return errors.New("a restart is awaited: " + describe(m))
		}
		return nil
	})
	return p.vmi(m)
}

// same fails the test if a guest is not the one before.
func (p *place) same(m *v1alpha1.Machine, before *kubevirtv1.VirtualMachineInstance) {
	p.Helper()
	if now := p.vmi(m); now.UID != before.UID || now.DeletionTimestamp != nil {
		p.Errorf("the guest was %s and is %s, deleted %v", before.UID, now.UID, now.DeletionTimestamp)
	}
}

// TestARestartIsApprovedOnceForOneChange is B2: nothing restarts a guest but an approval, which is worth one restart of the
// changes that it names.
func TestARestartIsApprovedOnceForOneChange(t *testing.T) {
	p := alone(t)
	m := p.machine("vm", "{template: small}")
	p.await(m, runs)
	first := p.vmi(m)
	p.approve(m, "yes")
	change(p, m, func(m *v1alpha1.Machine) { m.Spec.Resources.CPU.Cores = 2 })
	outdated := p.awaitRestart(m, "cores 1 → 2", "the present value of the annotation is for another restart")
	p.stays(m)
	p.same(m, first)

	// A later change needs another approval, whether the VirtualMachine has it yet or not.
	change(p, m, func(m *v1alpha1.Machine) {
		m.Spec.Resources.CPU.Cores = 4
		m.Annotations = map[string]string{v1alpha1.AnnotationApproveRestart: outdated}
	})
	approval := p.awaitRestart(m, "cores 1 → 4")
	if approval == outdated {
		t.Error("the approval of another change counts")
	}
	p.stays(m)
	p.same(m, first)

	p.approve(m, approval)
	second := p.restarted(m, first)
	if cores := second.Spec.Domain.CPU.Cores; cores != 4 {
		t.Errorf("the guest has %d cores", cores)
	}
	p.stays(m)
	p.operator.stop(t)
	p.operator = serve(t)
	p.intervals(2)
	p.same(m, second)

	// The approval is used up, and a change back and forth needs its own.
	change(p, m, func(m *v1alpha1.Machine) { m.Spec.Resources.CPU.Cores = 2 })
	again := p.awaitRestart(m, "cores 4 → 2")
	p.stays(m)
	p.same(m, second)
	p.approve(m, again)
	p.restarted(m, second)
	p.end(m) // while the last operator runs
}

// TestAStoppedGuestIsNotStartedByAnApproval: what the user has stopped stays stopped, and starts with the change.
func TestAStoppedGuestIsNotStartedByAnApproval(t *testing.T) {
	p := together(t)
	m := p.machine("vm", "{template: small}")
	p.await(m, runs)
	change(p, m, func(m *v1alpha1.Machine) { m.Spec.Disks = []v1alpha1.Disk{{Name: "data", Size: "1Gi"}} })
	approval := p.awaitRestart(m, "disk data none → claim vm-data on virtio")
	p.stop(m)
	if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionAwaitingRestart); c != nil {
		t.Errorf("a guest that does not run awaits a restart: %+v", c)
	}
	p.approve(m, approval)
	p.stays(m)
	p.await(m, want{phase: v1alpha1.PhaseStopped, ready: v1alpha1.ReasonStopped})
	p.start(m)
	if n := len(p.vmi(m).Spec.Volumes); n != 2 {
		t.Errorf("the guest has %d disks", n)
	}
	p.stays(m)
}
