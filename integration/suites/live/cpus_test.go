package live_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// builtIn is the first CPU, which has no id.
const builtIn = "built in"

// plugged returns the ids of the CPUs from the first slot to the last, and "" for an empty slot.
func (g *guest) plugged(t *testing.T) []string {
	t.Helper()
	slots, err := g.HotpluggableCPUs(t.Context())
	do(t, err)
	var ids []string
	for _, slot := range slots {
		id := slot.ID()
		if id == "" && slot.Path != "" {
			id = builtIn
		}
		ids = append(ids, id)
	}
	return ids
}

// hasCPUs checks QEMU's CPUs and waits until the guest uses the same number.
func (g *guest) hasCPUs(t *testing.T, ids ...string) {
	t.Helper()
	if diff := cmp.Diff(ids, g.plugged(t)); diff != "" {
		t.Errorf("the CPUs differ (-want +got):\n%s", diff)
	}
	used := 0
	for _, id := range ids {
		if id != "" {
			used++
		}
	}
	g.expect(t, g.said(), fmt.Sprintf(`tiny: cpus=%d `, used))
}

func TestCPUsArePluggedInAscendingOrder(t *testing.T) {
	t.Parallel()
	g := start(t, tiny(t))
	do(t, g.SetCPUs(t.Context(), 2))
	g.boot(t)
	g.hasCPUs(t, builtIn, "cpu-1", "", "")
	do(t, g.SetCPUs(t.Context(), 4))
	g.hasCPUs(t, builtIn, "cpu-1", "cpu-2", "cpu-3")

	wants(t, "a fifth CPU", g.SetCPUs(t.Context(), 5), qmp.ErrOutOfRange)
	wants(t, "no CPU", g.SetCPUs(t.Context(), 0), qmp.ErrOutOfRange)
	wants(t, "a CPU less in an emulated machine", g.SetCPUs(t.Context(), 3), qmp.ErrUnsafe)
	slots, err := g.HotpluggableCPUs(t.Context())
	do(t, err)
	refused(t, "a slot in use", g.AddCPU(t.Context(), slots[1], "other"), "exists")
	refused(t, "an id in use", g.AddCPU(t.Context(), slots[1], "cpu-1"), "Duplicate device ID 'cpu-1'")

	after := g.said()
	do(t, g.Reset(t.Context()))
	g.expect(t, after, "tiny: ready")
	g.hasCPUs(t, builtIn, "cpu-1", "cpu-2", "cpu-3")
}

// TestCPUIsUnplugged ends with the removal because QEMU 7.2 without KVM crashes soon after it.
func TestCPUIsUnplugged(t *testing.T) {
	t.Parallel()
	m := tiny(t)
	m.CPU.Count = 2
	g := start(t, m, qmp.WithUnsafeUnplug())
	if diff := cmp.Diff([]string{builtIn, "cpu-1", "", ""}, g.plugged(t)); diff != "" {
		t.Fatalf("the CPUs to start with differ (-want +got):\n%s", diff)
	}
	g.boot(t)
	g.hasCPUs(t, builtIn, "cpu-1", "", "")
	refused(t, "an unknown CPU", g.RemoveCPU(t.Context(), "cpu-7"), "Device 'cpu-7' not found")
	deleted := g.Subscribe("DEVICE_DELETED")
	do(t, g.SetCPUs(t.Context(), 1))
	g.hasCPUs(t, builtIn, "", "", "")
	// QEMU 7.2 only reports the CPU's part.
	if got := next[struct{ Path string }](t, deleted, "DEVICE_DELETED"); got.Path != "/machine/peripheral/cpu-1/lapic" {
		t.Errorf("deleted is %s", got.Path)
	}
	wants(t, "plugging again", g.SetCPUs(t.Context(), 2), qmp.ErrUnsafe)

	do(t, g.Close())
	again, err := qmp.Dial(t.Context(), g.path)
	do(t, err)
	defer again.Close()
	wants(t, "plugging again over another connection", again.SetCPUs(t.Context(), 2), qmp.ErrUnsafe)
}

func TestGuestMayKeepItsCPU(t *testing.T) {
	t.Parallel()
	m := tiny(t)
	m.CPU.Count = 2
	g := start(t, m, qmp.WithUnsafeUnplug(), qmp.WithPatience(qmp.Patience{Unplug: 10 * time.Second}))
	g.boot(t)
	g.tell(t, "sh echo 0 >/sys/firmware/acpi/hotplug/processor/enabled")
	if status := g.expect(t, 0, `tiny: exit=(\d+)`); status != "0" {
		t.Fatalf("the guest cannot be made to refuse: %s", status)
	}
	wants(t, "a guest that refuses", g.SetCPUs(t.Context(), 1), qmp.ErrGuestRefused)
	g.hasCPUs(t, builtIn, "cpu-1", "", "")
	do(t, g.SetCPUs(t.Context(), 3))
	g.hasCPUs(t, builtIn, "cpu-1", "cpu-2", "")

	// A stopped guest does nothing at all.
	do(t, g.Stop(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	wants(t, "a caller without patience", g.SetCPUs(ctx, 2), context.DeadlineExceeded)
	other, err := secondMonitor(t, g)
	do(t, err)
	wants(t, "a guest that stands", other.SetCPUs(t.Context(), 2), qmp.ErrGuestSilent)
}

// secondMonitor connects to the same machine with a shorter timeout.
func secondMonitor(t *testing.T, g *guest) (*qmp.Client, error) {
	t.Helper()
	if err := g.Close(); err != nil {
		return nil, err
	}
	c, err := qmp.Dial(t.Context(), g.path, qmp.WithUnsafeUnplug(), qmp.WithPatience(qmp.Patience{Unplug: 200 * time.Millisecond}))
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

func TestWithoutAnOperatingSystemNoCPUCanGo(t *testing.T) {
	t.Parallel()
	m := bare()
	m.CPU.Count = 2
	g := start(t, m, qmp.WithUnsafeUnplug())
	do(t, g.Cont(t.Context()))
	refused(t, "a CPU less", g.SetCPUs(t.Context(), 1), "unplug request for not supported device")
	do(t, g.SetCPUs(t.Context(), 4))
	if diff := cmp.Diff([]string{builtIn, "cpu-1", "cpu-2", "cpu-3"}, g.plugged(t)); diff != "" {
		t.Errorf("the CPUs differ (-want +got):\n%s", diff)
	}
}

func TestCPUsThatCameWithTheMachineStay(t *testing.T) {
	t.Parallel()
	m := bare()
	m.CPU.Count, m.CPU.Max = 2, 2
	g := start(t, m, qmp.WithUnsafeUnplug())
	wants(t, "a CPU less", g.SetCPUs(t.Context(), 1), qmp.ErrFixed)
	wants(t, "a CPU more", g.SetCPUs(t.Context(), 3), qmp.ErrOutOfRange)
}
