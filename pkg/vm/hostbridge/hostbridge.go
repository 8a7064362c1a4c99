// Package hostbridge connects a guest's card to a bridge of the host.
//
// The card's other end is a tap interface that exists while a process has it open: the kernel removes it when the last
// one of the runner and QEMU ends, however it ends. So a host keeps no interface of a machine that was killed.
package hostbridge

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/guestnet"
)

// Port is a tap interface in a bridge.
type Port struct {
	// Name is the interface's name, which the kernel has chosen.
	Name string
	// MTU is that of the bridge, in bytes.
	MTU int
	// Tap is the guest's end of the interface, with one queue and virtio's headers. The interface goes when the last
	// process has closed it.
	Tap *os.File
}

// namePattern has the kernel choose the first free number.
const namePattern = "kvmtap%d"

// Open makes a port in a bridge of the network namespace that the calling thread is in. The alias, at most 255 bytes, says
// whose port it is. It needs CAP_NET_ADMIN and /dev/net/tun.
//
// A guest is a host behind the port, not a switch: frames for the control of switches (01:80:c2:00:00:00 to 0f, such as
// those of the spanning tree) are dropped, because a switch that gets one of them may turn the host's port off.
func Open(bridge, alias string) (*Port, error) {
	p, err := open(bridge, alias)
	if err != nil {
		return nil, fmt.Errorf("connecting the guest to the bridge %s: %w", bridge, err)
	}
	return p, nil
}

func open(bridge, alias string) (*Port, error) {
	master, err := netlink.LinkByName(bridge)
	if err != nil {
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil, fmt.Errorf("the host has no such interface; make the bridge, or let the machine run on hosts that have it (spec.nodeSelector)")
		}
		return nil, fmt.Errorf("finding it: %w", err)
	}
	if master.Type() != "bridge" {
		return nil, fmt.Errorf("it is an interface of the type %q and no bridge", master.Type())
	}
	tap, name, err := guestnet.OpenTap(namePattern)
	if err != nil {
		return nil, err
	}
	p := &Port{Name: name, MTU: master.Attrs().MTU, Tap: tap}
	if err := p.join(master, alias); err != nil {
		return nil, errors.Join(err, tap.Close())
	}
	return p, nil
}

func (p *Port) join(bridge netlink.Link, alias string) error {
	link, err := netlink.LinkByName(p.Name)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"setting its alias", func() error { return netlink.LinkSetAlias(link, alias) }},
		{"setting its address", func() error { return netlink.LinkSetHardwareAddr(link, hostSide()) }},
		{"setting its MTU", func() error { return netlink.LinkSetMTU(link, p.MTU) }},
		// The host itself has no address on the port, also none that the kernel generates.
		{"setting its address mode", func() error { return ignoreNoIPv6(netlink.LinkSetIP6AddrGenMode(link, addressModeNone)) }},
		{"filtering what the guest sends", func() error { return guestnet.DropSwitchControl(link) }},
		{"joining", func() error { return netlink.LinkSetMaster(link, bridge) }},
		{"setting it up", func() error { return netlink.LinkSetUp(link) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// addressModeNone is IN6_ADDR_GEN_MODE_NONE: no link-local address is generated.
const addressModeNone = 1

// ignoreNoIPv6 ignores the error of a kernel without IPv6.
func ignoreNoIPv6(err error) error {
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// hostSide returns an address for the host's end of a card. It is a high one, because a bridge without an address of its
// own takes the lowest of its ports: machines that come and go must not change the host's address. It is random, because
// the bridge takes frames to it for the host's, and a user who could choose it would choose that of a neighbor.
func hostSide() net.HardwareAddr {
	address := net.HardwareAddr{0xfe, 0, 0, 0, 0, 0}
	_, _ = rand.Read(address[1:]) // it never fails
	return address
}
