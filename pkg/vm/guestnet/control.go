package guestnet

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// switchControl matches frames that switches do not forward but act on: those of the spanning tree, LACP, LLDP and others,
// to 01:80:c2:00:00:00 to 0f (IEEE 802.1Q, table 8-1).
func switchControl() rule {
	return rule{{offset: 0, size: 4, value: 0x0180c200}, {offset: 4, size: 2, mask: 0xfff0}}
}

// DropSwitchControl drops the frames for the control of switches that a guest sends to a new tap interface. A bridge that
// takes no part in the spanning tree forwards them, and a switch that gets one may turn off the port of the whole host.
func DropSwitchControl(tap netlink.Link) error {
	program, err := assemble([]rule{switchControl()}, actionDrop, actionContinue)
	if err != nil {
		return fmt.Errorf("assembling a filter: %w", err)
	}
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: tap.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscAdd(qdisc); err != nil {
		return fmt.Errorf("adding the qdisc clsact: %w", err)
	}
	return addFilter(tap, netlink.HANDLE_MIN_INGRESS, program)
}
