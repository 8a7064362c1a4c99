package qmp

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// removalMark is how the names of objects in QEMU begin that record which emulated CPUs were removed; the id of the CPU
// follows. The objects have no function. They are kept in QEMU because they then live exactly as long as the damage.
const removalMark = "kvm-operator-removed-"

// firstSafe is the first major release of QEMU from which emulated CPUs can be removed. It was tried with 7.2, which
// aborts, and with 10.0.
const firstSafe = 10

// WithUnsafeUnplug allows CPUs to be removed from a machine without KVM by any QEMU; see RemoveCPU.
func WithUnsafeUnplug() Option { return func(c *Client) { c.unsafeUnplug = true } }

// removed returns the ids of the emulated CPUs that were, or may still be, removed.
func (c *Client) removed(ctx context.Context) ([]string, error) {
	names, err := c.children(ctx, "/objects")
	var ids []string
	for _, name := range names {
		if id, ok := strings.CutPrefix(name, removalMark); ok {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// isSafe returns whether this QEMU stays whole when an emulated CPU is removed.
func (c *Client) isSafe(ctx context.Context) (bool, error) {
	version, err := c.Version(ctx)
	return version.QEMU.Major >= firstSafe, err
}

// dareAddition returns ErrUnsafe if QEMU would abort when a CPU is added.
func (c *Client) dareAddition(ctx context.Context) error {
	removed, err := c.removed(ctx)
	if err != nil || len(removed) == 0 {
		return err
	}
	safe, err := c.isSafe(ctx)
	switch {
	case err != nil:
		return err
	case !safe:
		return fmt.Errorf("%w: QEMU aborts after an earlier removal", ErrUnsafe)
	}
	slots, err := c.HotpluggableCPUs(ctx)
	if err == nil && created(slots, removed) >= len(slots) {
		err = fmt.Errorf("%w: QEMU aborts when it has created more emulated CPUs than the machine can have, removed ones included; restart the machine", ErrUnsafe)
	}
	return err
}

// created returns how many CPUs QEMU has created since its start.
func created(slots []CPUSlot, removed []string) int {
	count := PluggedCPUs(slots)
	for _, id := range removed {
		// A CPU that the guest has not released yet is counted already.
		if !slices.ContainsFunc(slots, func(s CPUSlot) bool { return s.ID() == id }) {
			count++
		}
	}
	return count
}

// dareRemoval leaves a mark before an emulated CPU is removed; unmark removes the mark if this call created it.
func (c *Client) dareRemoval(ctx context.Context, id string) (unmark func() error, err error) {
	unmark = func() error { return nil }
	kvm, err := c.KVM(ctx)
	if err != nil || kvm {
		return unmark, err
	}
	if !c.unsafeUnplug {
		safe, err := c.isSafe(ctx)
		if err == nil && !safe {
			err = fmt.Errorf("%w: QEMU aborts at the next reset or added CPU", ErrUnsafe)
		}
		if err != nil {
			return unmark, err
		}
	}
	removed, err := c.removed(ctx)
	if err != nil || slices.Contains(removed, id) {
		return unmark, err
	}
	mark := removalMark + id
	unmark = func() error { return c.Execute(ctx, "object-del", arguments{"id": mark}, nil) }
	return unmark, c.Execute(ctx, "object-add", arguments{"qom-type": "rng-builtin", "id": mark}, nil)
}
