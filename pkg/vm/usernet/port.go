package usernet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
)

// Protocols of published ports.
const (
	TCP = "tcp"
	UDP = "udp"
)

// Port is a port of the guest that others reach at a port of this host.
type Port struct {
	// Protocol is TCP or UDP.
	Protocol string
	// Listen is the local IPv4 address at which the port is published; invalid for that of the Options.
	Listen netip.Addr
	// Host is the number that others use, and Guest the number that the guest listens to; 1 to 65535.
	Host, Guest uint16
}

// SamePort returns a port that others reach under the guest's own number.
func SamePort(protocol string, number uint16) Port {
	return Port{Protocol: protocol, Host: number, Guest: number}
}

// String returns the port as protocol:host, or as protocol:host:guest if the numbers differ.
func (p Port) String() string {
	if p.Host == p.Guest {
		return fmt.Sprintf("%s:%d", p.Protocol, p.Host)
	}
	return fmt.Sprintf("%s:%d:%d", p.Protocol, p.Host, p.Guest)
}

// ParsePort parses a port with the same number on both sides, such as tcp:443.
func ParsePort(text string) (Port, error) {
	protocol, digits, _ := strings.Cut(text, ":")
	number, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || number == 0 || protocol != TCP && protocol != UDP {
		return Port{}, fmt.Errorf("%q is not a port such as tcp:443 or udp:53", text)
	}
	return SamePort(protocol, uint16(number)), nil
}

// at returns the local address of a port.
func (p Port) at(listen netip.Addr) netip.AddrPort {
	if p.Listen.IsValid() {
		listen = p.Listen
	}
	if !listen.IsValid() {
		listen = netip.IPv4Unspecified()
	}
	return netip.AddrPortFrom(listen, p.Host)
}

// CheckPorts checks what Open would publish at an address, which is invalid for all addresses. It returns an error for
// an unknown protocol, a number 0, an address that is not IPv4, and two ports that would be at the same place. It opens
// nothing, so it says nothing of ports that are in use.
func CheckPorts(listen netip.Addr, ports []Port) error {
	for i, port := range ports {
		at := port.at(listen)
		switch {
		case port.Protocol != TCP && port.Protocol != UDP:
			return fmt.Errorf("port %s of the guest has neither the protocol tcp nor udp", port)
		case port.Host == 0 || port.Guest == 0:
			return fmt.Errorf("port %s of the guest has the number 0", port)
		case !at.Addr().Is4():
			return fmt.Errorf("port %s of the guest is to be published at %s, which is not an IPv4 address", port, at.Addr())
		}
		for _, other := range ports[:i] {
			if other.Protocol == port.Protocol && overlap(other.at(listen), at) {
				return fmt.Errorf("%s port %d of %s is published twice", port.Protocol, port.Host, at.Addr())
			}
		}
	}
	return nil
}

// overlap reports whether two sockets cannot be bound at the same time.
func overlap(a, b netip.AddrPort) bool {
	return a.Port() == b.Port() && (a.Addr() == b.Addr() || a.Addr().IsUnspecified() || b.Addr().IsUnspecified())
}

// PortInUseError says that another socket of this host has a port. It wraps EADDRINUSE.
type PortInUseError struct {
	// Protocol is TCP or UDP.
	Protocol string
	// Address and Port are where the guest's port was to be published.
	Address netip.Addr
	Port    uint16
}

// Error names the port.
func (e *PortInUseError) Error() string {
	return fmt.Sprintf("%s port %d of %s is already in use", e.Protocol, e.Port, e.Address)
}

// Unwrap returns the operating system's error.
func (e *PortInUseError) Unwrap() error { return syscall.EADDRINUSE }

// socket is a published port: one of connections or datagrams is set.
type socket struct {
	Port
	connections *net.TCPListener
	datagrams   *net.UDPConn
}

// Close closes the port.
func (s socket) Close() error {
	if s.datagrams != nil {
		return s.datagrams.Close()
	}
	return s.connections.Close()
}

// bind opens all ports, or none.
func bind(listen netip.Addr, ports []Port) ([]socket, error) {
	var opened []socket
	for _, port := range ports {
		s, err := bindOne(port, port.at(listen))
		if err != nil {
			errs := []error{fmt.Errorf("publishing port %s of the guest: %w", port, err)}
			for _, s := range opened {
				errs = append(errs, s.Close())
			}
			return nil, errors.Join(errs...)
		}
		opened = append(opened, s)
	}
	return opened, nil
}

func bindOne(port Port, at netip.AddrPort) (socket, error) {
	s := socket{Port: port}
	var err error
	if port.Protocol == UDP {
		s.datagrams, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	} else {
		s.connections, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at))
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return socket{}, &PortInUseError{Protocol: port.Protocol, Address: at.Addr(), Port: at.Port()}
	}
	return s, err
}
