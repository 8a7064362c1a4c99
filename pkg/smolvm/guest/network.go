package guest

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
)

// card is the machine's network interface.
const card = "eth0"

// configureNetwork configures the loopback interface and, if there is a network, the card. It waits for the card.
func configureNetwork(n *agentwire.Network) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("configuring the network: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing is left to be said
	r := &rtnetlink{fd: fd}
	if err := r.up("lo", 0); err != nil || n == nil {
		return err
	}
	if !await(func() bool { return exists("/sys/class/net/" + card) }) {
		return fmt.Errorf("configuring the network: the machine has no interface %s", card)
	}
	if err := r.up(card, n.MTU); err != nil {
		return err
	}
	if err := r.address(n.Address); err != nil {
		return err
	}
	if !n.Address.Contains(n.Gateway) {
		if err := r.route(netip.PrefixFrom(n.Gateway, n.Gateway.BitLen()), netip.Addr{}); err != nil {
			return err
		}
	}
	return r.route(netip.PrefixFrom(zero(n.Gateway), 0), n.Gateway)
}

func zero(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// rtnetlink changes the kernel's network configuration (rtnetlink(7)).
type rtnetlink struct {
	fd     int
	number uint32
}

// up enables an interface. mtu is 0 for its own.
func (r *rtnetlink) up(name string, mtu int) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("configuring %s: %w", name, err)
	}
	body := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(body[4:], uint32(i.Index)) //nolint:gosec // the kernel's own
	binary.NativeEndian.PutUint32(body[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(body[12:], unix.IFF_UP)
	if mtu > 0 {
		body = attribute(body, unix.IFLA_MTU, binary.NativeEndian.AppendUint32(nil, uint32(mtu))) //nolint:gosec // the kernel checks it
	}
	if err := r.request(unix.RTM_NEWLINK, 0, body); err != nil {
		return fmt.Errorf("enabling %s: %w", name, err)
	}
	return nil
}

// address gives the card its address.
func (r *rtnetlink) address(prefix netip.Prefix) error {
	i, err := net.InterfaceByName(card)
	if err != nil {
		return err
	}
	body := []byte{family(prefix.Addr()), byte(prefix.Bits()), 0, unix.RT_SCOPE_UNIVERSE} //nolint:gosec // at most 128
	body = binary.NativeEndian.AppendUint32(body, uint32(i.Index))                        //nolint:gosec // the kernel's own
	for _, kind := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
		body = attribute(body, kind, prefix.Addr().AsSlice())
	}
	if err := r.request(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, body); err != nil {
		return fmt.Errorf("setting the address %s: %w", prefix, err)
	}
	return nil
}

// route sends packets for a network to a gateway, or directly without one.
func (r *rtnetlink) route(to netip.Prefix, gateway netip.Addr) error {
	i, err := net.InterfaceByName(card)
	if err != nil {
		return err
	}
	scope := byte(unix.RT_SCOPE_LINK)
	if gateway.IsValid() {
		scope = unix.RT_SCOPE_UNIVERSE
	}
	body := []byte{family(to.Addr()), byte(to.Bits()), 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, scope, unix.RTN_UNICAST, 0, 0, 0, 0} //nolint:gosec // at most 128
	if to.Bits() > 0 {
		body = attribute(body, unix.RTA_DST, to.Addr().AsSlice())
	}
	if gateway.IsValid() {
		body = attribute(body, unix.RTA_GATEWAY, gateway.AsSlice())
	}
	body = attribute(body, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(i.Index))) //nolint:gosec // the kernel's own
	if err := r.request(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, body); err != nil {
		return fmt.Errorf("setting the route to %s: %w", to, err)
	}
	return nil
}

func family(address netip.Addr) byte {
	if address.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// attribute appends an attribute to a message.
func attribute(body []byte, kind uint16, value []byte) []byte {
	body = binary.NativeEndian.AppendUint16(body, uint16(unix.SizeofRtAttr+len(value))) //nolint:gosec // at most 20
	body = binary.NativeEndian.AppendUint16(body, kind)
	body = append(body, value...)
	return append(body, make([]byte, -len(value)&3)...)
}

// request sends a message and waits for the kernel's answer to it.
func (r *rtnetlink) request(kind, flags uint16, body []byte) error {
	r.number++
	message := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body))) //nolint:gosec // a few bytes
	message = binary.NativeEndian.AppendUint16(message, kind)
	message = binary.NativeEndian.AppendUint16(message, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	message = binary.NativeEndian.AppendUint32(message, r.number)
	message = append(binary.NativeEndian.AppendUint32(message, 0), body...)
	if err := unix.Sendto(r.fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(r.fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("the kernel answers with %d bytes that are no acknowledgement", n)
	}
	if number := -binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:]); number != 0 { // it is negative, or 0
		return unix.Errno(number)
	}
	return nil
}
