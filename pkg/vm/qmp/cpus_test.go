package qmp_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// How guests react when a CPU is to be removed.
var guests = map[string]func(*machine, *peer, string){
	"releases it": func(m *machine, p *peer, id string) {
		m.report(p, id, 3, 132)
		m.report(p, "another", 3, 129)
		m.later(func() { m.release(p, id) })
	},
	"refuses": func(m *machine, p *peer, id string) {
		m.report(p, id, 3, 132)
		m.report(p, id, 1, 1) // about an earlier plug
		m.report(p, id, 3, 129)
	},
	"refuses, in newer QEMUs": func(_ *machine, p *peer, id string) {
		p.event("DEVICE_UNPLUG_GUEST_ERROR", fmt.Sprintf(`{"device": %q, "path": "/machine/peripheral/%s"}`, id, id))
	},
	"is silent": func(*machine, *peer, string) {},
	"goes without a word": func(m *machine, p *peer, id string) {
		m.later(func() { m.release(&peer{conn: discard{p.conn}}, id) })
	},
	"hangs up": func(_ *machine, p *peer, _ string) { p.conn.Close() },
}

func TestSetCPUs(t *testing.T) {
	unsafe := []qmp.Option{qmp.WithUnsafeUnplug()}
	for name, test := range map[string]struct {
		machine *machine
		options []qmp.Option
		n       int
		sent    []string
		err     error // nil: success
	}{
		"as many as there are": {
			machine: &machine{slots: cpuSlots(4, "", "cpu-1")}, n: 2,
		},
		"the first slots are filled first": {
			machine: &machine{slots: cpuSlots(4, "")}, n: 3,
			sent: []string{"device_add cpu-1", "device_add cpu-2"},
		},
		"an id that another CPU has is not used": {
			machine: &machine{slots: cpuSlots(4, "", "cpu-2")}, n: 3,
			sent: []string{"device_add cpu-3"},
		},
		"the last one goes first": {
			machine: &machine{kvm: true, slots: cpuSlots(4, "", "a", "b", "c"), unplug: guests["releases it"]}, n: 2,
			sent: []string{"device_del c", "device_del b"},
		},
		"a CPU goes and no event tells": {
			machine: &machine{kvm: true, slots: cpuSlots(2, "", "a"), unplug: guests["goes without a word"], patience: time.Second}, n: 1,
			sent: []string{"device_del a"},
		},
		"more than there is room for": {
			machine: &machine{slots: cpuSlots(4, "")}, n: 5, err: qmp.ErrOutOfRange,
		},
		"more than a full machine has": {
			machine: &machine{slots: cpuSlots(2, "", "a")}, n: 3, err: qmp.ErrOutOfRange,
		},
		"none": {
			machine: &machine{kvm: true, slots: cpuSlots(2, "", "a"), unplug: guests["releases it"]}, n: 0, err: qmp.ErrOutOfRange,
		},
		"less than came with the machine": {
			machine: &machine{kvm: true, slots: cpuSlots(3, "", "", "a"), unplug: guests["releases it"]}, n: 1,
			sent: []string{"device_del a"}, err: qmp.ErrFixed,
		},
		"the guest refuses": {
			machine: &machine{kvm: true, slots: cpuSlots(3, "", "a", "b"), unplug: guests["refuses"]}, n: 1,
			sent: []string{"device_del b"}, err: qmp.ErrGuestRefused,
		},
		"the guest refuses, in newer QEMUs": {
			machine: &machine{kvm: true, slots: cpuSlots(3, "", "a", "b"), unplug: guests["refuses, in newer QEMUs"]}, n: 1,
			sent: []string{"device_del b"}, err: qmp.ErrGuestRefused,
		},
		"the guest is silent": {
			machine: &machine{kvm: true, slots: cpuSlots(2, "", "a"), unplug: guests["is silent"], patience: short}, n: 1,
			sent: []string{"device_del a"}, err: qmp.ErrGuestSilent,
		},
		"QEMU ends meanwhile": {
			machine: &machine{kvm: true, slots: cpuSlots(2, "", "a"), unplug: guests["hangs up"]}, n: 1,
			sent: []string{"device_del a"}, err: qmp.ErrClosed,
		},
		"an added CPU is not there": {
			machine: &machine{slots: cpuSlots(4, ""), ignoreAdd: true}, n: 3,
			sent: []string{"device_add cpu-1"}, err: qmp.ErrUnobserved,
		},
		"removal without KVM": {
			machine: &machine{slots: cpuSlots(2, "", "a"), unplug: guests["releases it"]}, n: 1, err: qmp.ErrUnsafe,
		},
		"removal without KVM, forced": {
			machine: &machine{slots: cpuSlots(3, "", "a", "b"), unplug: guests["releases it"]}, n: 1, options: unsafe,
			sent: []string{"object-add kvm-operator-removed-b", "device_del b", "object-add kvm-operator-removed-a", "device_del a"},
		},
		"adding after a removal without KVM": {
			machine: &machine{slots: cpuSlots(3, "", "a"), objects: []string{"kvm-operator-removed-b"}}, n: 3, options: unsafe,
			err: qmp.ErrUnsafe,
		},
		"a refused removal without KVM leaves no mark": {
			machine: &machine{slots: cpuSlots(2, "", "a"), unplug: guests["refuses"]}, n: 1, options: unsafe,
			sent: []string{"object-add kvm-operator-removed-a", "device_del a", "object-del kvm-operator-removed-a"},
			err:  qmp.ErrGuestRefused,
		},
		"removal without KVM by a newer QEMU": {
			machine: &machine{qemu: 10, slots: cpuSlots(4, "", "a", "b"), unplug: guests["releases it"]}, n: 2,
			sent: []string{"object-add kvm-operator-removed-b", "device_del b"},
		},
		"adding after that, under its own id": {
			machine: &machine{qemu: 10, slots: cpuSlots(4, "", "cpu-1"), objects: []string{"kvm-operator-removed-cpu-2"}}, n: 3,
			sent: []string{"device_add cpu-3"},
		},
		"adding when all CPUs were created once": {
			machine: &machine{qemu: 10, slots: cpuSlots(3, "", "cpu-1"), objects: []string{"kvm-operator-removed-cpu-2"}}, n: 3,
			err: qmp.ErrUnsafe,
		},
		"a CPU that the guest keeps is not counted twice": {
			machine: &machine{qemu: 10, slots: cpuSlots(3, "", "cpu-1"), objects: []string{"kvm-operator-removed-cpu-1"}}, n: 3,
			sent: []string{"device_add cpu-2"},
		},
		"a CPU that was to be removed before": {
			machine: &machine{qemu: 10, slots: cpuSlots(3, "", "a"), objects: []string{"kvm-operator-removed-a"}, unplug: guests["releases it"]}, n: 1,
			sent: []string{"device_del a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := test.machine
			err := m.run(t, test.options...).SetCPUs(t.Context(), test.n)
			if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
				t.Errorf("it returns %v; want %v", err, test.err)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if diff := cmp.Diff(test.sent, m.sent); diff != "" {
				t.Errorf("it sends otherwise (-want +got):\n%s", diff)
			}
			if got := qmp.PluggedCPUs(m.slots); err == nil && got != test.n {
				t.Errorf("the machine has %d CPUs; want %d", got, test.n)
			}
		})
	}
}

func TestRemovalThatQEMURefusesLeavesNoMark(t *testing.T) {
	m := &machine{slots: cpuSlots(2, "", "a")}
	var refusal *qmp.CommandError
	if err := m.run(t, qmp.WithUnsafeUnplug()).RemoveCPU(t.Context(), "a"); !errors.As(err, &refusal) {
		t.Errorf("it returns %v", err)
	}
	if len(m.objects) != 0 {
		t.Errorf("a mark is left: %v", m.objects)
	}
}

func TestSlotsAreOrderedByTopology(t *testing.T) {
	place := func(socket, die, core, thread int) qmp.CPUSlot {
		return qmp.CPUSlot{Count: 1, Place: map[string]int{"socket-id": socket, "die-id": die, "core-id": core, "thread-id": thread}}
	}
	want := []qmp.CPUSlot{
		place(0, 0, 0, 0), place(0, 0, 0, 1), place(0, 0, 1, 0), place(0, 1, 0, 0), place(1, 0, 0, 0), place(1, 0, 0, 1),
	}
	m := &machine{slots: []qmp.CPUSlot{want[5], want[3], want[1], want[4], want[2], want[0]}}
	got, err := m.run(t).HotpluggableCPUs(t.Context())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("the order differs (-want +got), error %v:\n%s", err, diff)
	}
}

func TestChangesTakeTurns(t *testing.T) {
	m := &machine{kvm: true, slots: cpuSlots(8, "")}
	m.unplug = guests["releases it"]
	c := m.run(t)
	var waiting sync.WaitGroup
	for n := range 8 {
		waiting.Go(func() {
			if err := c.SetCPUs(t.Context(), 1+n); err != nil {
				t.Error(err)
			}
		})
	}
	waiting.Wait()
}

func TestChangeThatWaitsForAnotherEndsWithItsContext(t *testing.T) {
	m := &machine{kvm: true, slots: cpuSlots(2, "", "a"), patience: short}
	removing, released := make(chan struct{}), make(chan struct{})
	m.unplug = func(*machine, *peer, string) { close(removing); <-released }
	c := m.run(t)
	first := make(chan error)
	go func() { first <- c.SetCPUs(t.Context(), 1) }()
	<-removing
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.SetCPUs(ctx, 2); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it returns %v", err)
	}
	close(released)
	if err := <-first; !errors.Is(err, qmp.ErrGuestSilent) {
		t.Errorf("the first change returns %v", err)
	}
}
