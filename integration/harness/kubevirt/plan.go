package kubevirt

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Crash makes the next boots of a virtual machine's guest fail: virt-handler reports that the instance is Failed.
func (h *Handler) Crash(machine types.NamespacedName, boots int) {
	h.change(machine, func(p *plan) { p.crashes = boots })
}

// HoldBoot keeps guests of a virtual machine from booting: its instance stays Scheduled until ReleaseBoot.
func (h *Handler) HoldBoot(machine types.NamespacedName) {
	h.change(machine, func(p *plan) { p.bootHeld = true })
}

// ReleaseBoot ends HoldBoot.
func (h *Handler) ReleaseBoot(machine types.NamespacedName) {
	h.change(machine, func(p *plan) { p.bootHeld = false })
}

// HoldEnd keeps guests of a virtual machine from ending when they should, as a guest does that ignores its power
// button: a deleted instance, and with it a deleted virtual machine, keeps its finalizer until ReleaseEnd.
func (h *Handler) HoldEnd(machine types.NamespacedName) {
	h.change(machine, func(p *plan) { p.endHeld = true })
}

// ReleaseEnd ends HoldEnd.
func (h *Handler) ReleaseEnd(machine types.NamespacedName) {
	h.change(machine, func(p *plan) { p.endHeld = false })
}

// HoldAddresses keeps guests of a virtual machine from reporting addresses, as before the answer of a DHCP server.
// Addresses that were reported disappear.
func (h *Handler) HoldAddresses(machine types.NamespacedName) {
	h.change(machine, func(p *plan) { p.addressesHeld = true })
}

// ReleaseAddresses ends HoldAddresses.
func (h *Handler) ReleaseAddresses(machine types.NamespacedName) {
	h.change(machine, func(p *plan) { p.addressesHeld = false })
}

// SetAddresses makes guests of a virtual machine report these addresses on one network. Without addresses, they report
// the ones that they would report otherwise.
func (h *Handler) SetAddresses(machine types.NamespacedName, network string, addresses ...string) {
	h.change(machine, func(p *plan) { p.addresses[network] = addresses })
}

// Forget ends all that was said about a virtual machine.
func (h *Handler) Forget(machine types.NamespacedName) {
	h.mu.Lock()
	delete(h.plans, machine)
	h.mu.Unlock()
	h.change(machine, func(*plan) {})
}

// CrashNow makes the running guest of a virtual machine fail: its instance is Failed. It waits for a running guest until
// the context ends.
func (h *Handler) CrashNow(ctx context.Context, machine types.NamespacedName) error {
	return h.SetPhase(ctx, machine, Failed, Running)
}

// PowerOff makes the running guest of a virtual machine power itself off: its instance is Succeeded. It waits for a
// running guest until the context ends.
func (h *Handler) PowerOff(ctx context.Context, machine types.NamespacedName) error {
	return h.SetPhase(ctx, machine, Succeeded, Running)
}

// Pause reports that the running guest of a virtual machine is paused. The subresource that pauses guests asks
// virt-handler by its own protocol, which is not played. It waits for a running guest until the context ends.
func (h *Handler) Pause(ctx context.Context, machine types.NamespacedName) error {
	return h.update(ctx, machine, func(r *report) {
		r.condition("Paused", "True", "PausedByUser", "VMI was paused by user")
	}, Running)
}

// Unpause ends Pause.
func (h *Handler) Unpause(ctx context.Context, machine types.NamespacedName) error {
	return h.update(ctx, machine, func(r *report) { r.withoutCondition("Paused") }, Running)
}

// SetPhase makes the phase of an instance to, from one of the given phases. It waits for an instance in such a phase
// until the context ends. Handler leaves an instance alone whose phase is neither Scheduled nor Running. The API knows
// the phase Unknown, but KubeVirt v1.8.4 never writes it: see KubeVirt.LoseNode for a lost node.
func (h *Handler) SetPhase(ctx context.Context, machine types.NamespacedName, to string, from ...string) error {
	return h.update(ctx, machine, func(r *report) { r.enter(to) }, from...)
}

// change changes the plan of a virtual machine and lets the workers reconcile its instance.
func (h *Handler) change(machine types.NamespacedName, change func(*plan)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.plans[machine]
	if p == nil {
		p = &plan{addresses: map[string][]string{}}
		h.plans[machine] = p
	}
	change(p)
	if h.queue != nil {
		h.queue.Add(machine)
	}
}

// planOf returns a copy of the plan of a virtual machine.
func (h *Handler) planOf(machine types.NamespacedName) plan {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.plans[machine]
	if p == nil {
		return plan{}
	}
	copied := *p
	copied.addresses = maps.Clone(p.addresses)
	for network, addresses := range copied.addresses {
		copied.addresses[network] = slices.Clone(addresses)
	}
	return copied
}
