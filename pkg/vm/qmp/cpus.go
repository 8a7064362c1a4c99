package qmp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// peripherals is where QEMU's object model has devices with an id.
const peripherals = "/machine/peripheral/"

// CPUSlot is a place for CPUs in the machine.
type CPUSlot struct {
	// Driver is the device that fits.
	Driver string `json:"type"`
	// Count is how many CPUs the device has: 1 on x86.
	Count int `json:"vcpus-count"`
	// Place contains socket-id, core-id, thread-id and whatever else identifies the slot.
	Place map[string]int `json:"props"`
	// Path is where the device is in QEMU's object model; empty if the slot is.
	Path string `json:"qom-path"`
}

// ID returns the id of the device in the slot, if it was plugged; only such a device can be unplugged.
func (s CPUSlot) ID() string {
	id, ok := strings.CutPrefix(s.Path, peripherals)
	if !ok {
		return ""
	}
	return id
}

// compare orders slots from the first to the last. A Linux guest under TCG does not survive its boot if the slots in
// use are not the first ones.
func (s CPUSlot) compare(other CPUSlot) int {
	for _, level := range []string{"socket-id", "die-id", "cluster-id", "module-id", "core-id", "thread-id"} {
		if order := cmp.Compare(s.Place[level], other.Place[level]); order != 0 {
			return order
		}
	}
	return 0
}

// HotpluggableCPUs lists all places for CPUs, used and empty ones, from the first to the last.
func (c *Client) HotpluggableCPUs(ctx context.Context) ([]CPUSlot, error) {
	var slots []CPUSlot
	err := c.Execute(ctx, "query-hotpluggable-cpus", nil, &slots)
	slices.SortFunc(slots, CPUSlot.compare)
	return slots, err
}

// PluggedCPUs counts the CPUs in the slots.
func PluggedCPUs(slots []CPUSlot) int {
	count := 0
	for _, s := range slots {
		if s.Path != "" {
			count += s.Count
		}
	}
	return count
}

// AddCPU plugs a CPU with an id into an empty slot. The CPU is in the machine when AddCPU returns; the guest decides
// when to use it. ErrUnsafe: see RemoveCPU.
func (c *Client) AddCPU(ctx context.Context, slot CPUSlot, id string) error {
	if err := c.dareAddition(ctx); err != nil {
		return fmt.Errorf("adding %s: %w", id, err)
	}
	device := arguments{"driver": slot.Driver, "id": id}
	for property, value := range slot.Place {
		device[property] = value
	}
	return c.Execute(ctx, "device_add", device, nil)
}

// RemoveCPU asks the guest to release a plugged CPU and returns when it is out of the machine. ErrGuestRefused and
// ErrGuestSilent say that it is not; after the latter it may still be removed.
//
// Without KVM it fails with ErrUnsafe, unless the client was created WithUnsafeUnplug, before QEMU 10: QEMU 7.2 corrupts
// its memory when an emulated CPU is removed, and nearly always aborts at the next reset or added CPU; with
// accel=tcg,thread=single it aborts at once. From then on AddCPU fails, for every client. QEMU 10 aborts when, over its
// life, it has created more emulated CPUs than the machine can have at a time (tcg_register_thread): there, AddCPU fails
// before that.
func (c *Client) RemoveCPU(ctx context.Context, id string) error {
	unmark, err := c.dareRemoval(ctx, id)
	if err != nil {
		return fmt.Errorf("removing %s: %w", id, err)
	}
	err = c.unplug(ctx, id)
	var refusal *CommandError
	if errors.As(err, &refusal) || errors.Is(err, ErrGuestRefused) {
		err = errors.Join(err, unmark())
	}
	if err != nil {
		return fmt.Errorf("removing %s: %w", id, err)
	}
	return nil
}

// unplug removes a CPU and waits until it is gone.
func (c *Client) unplug(ctx context.Context, id string) error {
	events := c.Subscribe(eventDeviceDeleted, eventUnplugRefused, eventOST)
	defer events.Close()
	if err := c.Execute(ctx, "device_del", arguments{"id": id}, nil); err != nil {
		return err
	}
	gone := func() (bool, error) {
		slots, err := c.HotpluggableCPUs(ctx)
		return !slices.ContainsFunc(slots, func(s CPUSlot) bool { return s.ID() == id }), err
	}
	return c.await(ctx, events, c.patience.Unplug, gone, func(e Event) error { return unplugRefusal(e, id) })
}

// unplugRefusal returns ErrGuestRefused if the event says that the guest keeps the device.
func unplugRefusal(e Event, id string) error {
	const success, inProgress = 0, 132
	switch e.Name {
	case eventOST:
		var report ost
		if err := e.Decode(&report); err != nil {
			return err
		}
		if report.Info.Device == id && report.isEject() && report.Info.Status != success && report.Info.Status != inProgress {
			return fmt.Errorf("%w: _OST status %d", ErrGuestRefused, report.Info.Status)
		}
	case eventUnplugRefused:
		var refused deletion
		if err := e.Decode(&refused); err != nil {
			return err
		}
		if refused.Device == id || refused.Path == peripherals+id {
			return ErrGuestRefused
		}
	}
	return nil
}

// SetCPUs brings the machine to n CPUs: it plugs the first empty slots or unplugs the last ones in use, one by one, and
// checks after each what QEMU has now. It stops at the first failure: ErrOutOfRange and ErrFixed before anything is
// changed for it, otherwise the error of AddCPU or RemoveCPU. What was done until then remains; a further call
// continues from there.
func (c *Client) SetCPUs(ctx context.Context, n int) error {
	return c.exclusive(ctx, func() error {
		slots, err := c.HotpluggableCPUs(ctx)
		for err == nil && PluggedCPUs(slots) != n {
			before := slots
			if err = c.stepCPUs(ctx, slots, n); err != nil {
				break
			}
			slots, err = c.HotpluggableCPUs(ctx)
			if err == nil && missing(slots, n) >= missing(before, n) {
				err = ErrUnobserved
			}
		}
		if err != nil {
			return fmt.Errorf("changing the number of CPUs to %d: %w", n, err)
		}
		return nil
	})
}

// missing returns how many CPUs there are too few or too many.
func missing(slots []CPUSlot, n int) int {
	plugged := PluggedCPUs(slots)
	return max(n-plugged, plugged-n)
}

// stepCPUs brings the machine one CPU nearer to n.
func (c *Client) stepCPUs(ctx context.Context, slots []CPUSlot, n int) error {
	if n < PluggedCPUs(slots) {
		id, err := lastPlugged(slots, n)
		if err != nil {
			return err
		}
		return c.RemoveCPU(ctx, id)
	}
	removed, err := c.removed(ctx)
	if err != nil {
		return err
	}
	slot, id, err := firstEmpty(slots, removed, n)
	if err != nil {
		return err
	}
	return c.AddCPU(ctx, slot, id)
}

// firstEmpty chooses the slot for the next CPU of n and an id that no other CPU has, or had: cpu-<place in the order>, if
// free.
func firstEmpty(slots []CPUSlot, removed []string, n int) (CPUSlot, string, error) {
	taken := map[string]bool{}
	for _, id := range removed {
		taken[id] = true
	}
	for _, s := range slots {
		taken[s.ID()] = true
	}
	i := slices.IndexFunc(slots, func(s CPUSlot) bool { return s.Path == "" })
	if i < 0 || n > len(slots)*slots[i].Count {
		return CPUSlot{}, "", fmt.Errorf("%w: it has %d slots", ErrOutOfRange, len(slots))
	}
	number := i
	for taken["cpu-"+strconv.Itoa(number)] {
		number++
	}
	return slots[i], "cpu-" + strconv.Itoa(number), nil
}

// lastPlugged chooses the CPU to remove on the way down to n.
func lastPlugged(slots []CPUSlot, n int) (string, error) {
	if n < 1 {
		return "", fmt.Errorf("%w: %d", ErrOutOfRange, n)
	}
	for _, s := range slices.Backward(slots) {
		switch {
		case s.Path == "":
		case s.ID() == "":
			return "", fmt.Errorf("%w: %s came with the machine", ErrFixed, s.Path)
		default:
			return s.ID(), nil
		}
	}
	return "", fmt.Errorf("%w: there is none", ErrFixed)
}
