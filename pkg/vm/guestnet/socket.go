package guestnet

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sockets are the raw sockets through which the server receives and sends frames.
type sockets struct {
	tap    *os.File
	uplink *os.File // nil unless the server translates
}

// openSockets opens what the server needs.
func openSockets(handle *netlink.Handle, uplink string, s *server) (*sockets, error) {
	tap, err := openSocket(handle, TapName, forServer())
	if err != nil {
		return nil, err
	}
	opened := &sockets{tap: tap}
	if s.translates() {
		if opened.uplink, err = openSocket(handle, uplink, forTranslator()); err != nil {
			opened.close()
			return nil, err
		}
	}
	return opened, nil
}

// close closes what is open.
func (s *sockets) close() {
	if s == nil {
		return
	}
	for _, file := range []*os.File{s.tap, s.uplink} {
		if file != nil {
			_ = file.Close() // nothing was written that could be lost
		}
	}
}

// openSocket opens a packet socket (packet(7)) for the incoming frames of an interface that match one of the rules. It
// receives them before the bridge and before the filters of the interface.
func openSocket(handle *netlink.Handle, name string, rules []rule) (*os.File, error) {
	link, err := handle.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("finding the interface %s: %w", name, err)
	}
	// Without a protocol nothing is received before filter and interface are set.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	if err := bind(fd, link.Attrs().Index, rules); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("binding a packet socket to %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func bind(fd, index int, rules []rule) error {
	const wholeFrame = 1 << 18
	instructions, err := assemble(rules, wholeFrame, 0)
	if err != nil {
		return err
	}
	filters := make([]unix.SockFilter, len(instructions))
	for i, instruction := range instructions {
		filters[i] = unix.SockFilter{Code: instruction.Op, Jt: instruction.Jt, Jf: instruction.Jf, K: instruction.K}
	}
	program := &unix.SockFprog{Len: length16(len(filters)), Filter: &filters[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, program); err != nil {
		return fmt.Errorf("attaching a filter: %w", err)
	}
	// Most of what passes is outgoing and would be copied for nothing.
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return fmt.Errorf("ignoring outgoing frames: %w", err)
	}
	const everything = uint16(unix.ETH_P_ALL)
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everything<<8 | everything>>8, Ifindex: index})
}
