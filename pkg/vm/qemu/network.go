package qemu

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Network is a network interface. It is connected to a tap interface, to a socket or to QEMU's user network.
type Network struct {
	// Model is ModelVirtio, also if empty, or one of the other models, which are slower.
	Model string
	// MAC is the interface's address as the guest sees it: a unicast one, such as 52:54:00:12:34:56, and unique.
	MAC string
	// Tap is the name of an existing tap interface of the host, with the given number of Queues if there are several.
	Tap string
	// TapDescriptor is the file descriptor, from 3, that the open tap interface has in QEMU's process: then QEMU needs
	// no privileges for it. 0: QEMU opens Tap.
	TapDescriptor int
	// SocketDescriptor is the file descriptor, from 3, that a connected stream socket has in QEMU's process. It carries
	// frames, each after its length in four bytes (-netdev stream). 0: there is none.
	SocketDescriptor int
	// User is QEMU's own network, which needs no interface of the host and no privileges.
	User *UserNetwork
	// MTU is announced to the guest, 68 to 65535; ModelVirtio only. 0: the guest uses its default, 1500. The tap
	// interface needs the same.
	MTU int
	// Queues is how many pairs of queues a tap interface has, for as many CPUs; several are for ModelVirtio only. 0
	// means 1.
	Queues int
	// VHost moves a tap interface's packets in the host's kernel; ModelVirtio only. It needs /dev/vhost-net, without
	// which QEMU 7.2 aborts.
	VHost bool
	// VHostDescriptor is the file descriptor that /dev/vhost-net has in QEMU's process. 0: QEMU opens it.
	VHostDescriptor int
}

// UserNetwork is a network of the guest's own, translated by QEMU (-netdev user).
type UserNetwork struct {
	// Subnet is the guest's IPv4 network. The zero value is QEMU's default, 10.0.2.0/24.
	Subnet netip.Prefix
	// Isolated has the guest reach nothing there, neither the host nor what the host reaches; Forwards still work.
	Isolated bool
	// Forwards are ports of the host that lead to the guest.
	Forwards []Forward
}

// Forward forwards connections from a port of the host to the guest.
type Forward struct {
	// Protocol is tcp, also if empty, or udp.
	Protocol string
	// Address is the host's IPv4 address. The zero value is 127.0.0.1: nothing is open to others by default.
	Address netip.Addr
	// HostPort and GuestPort are 1 to 65535.
	HostPort, GuestPort int
}

// Models of network interfaces.
const (
	// ModelVirtio is the fastest. A guest needs a driver for it, which Linux has.
	ModelVirtio = "virtio-net"
	// ModelE1000E and ModelE1000 are Intel's 82574L and 82540EM.
	ModelE1000E = "e1000e"
	ModelE1000  = "e1000"
	// ModelRTL8139 is for guests that know none of the others.
	ModelRTL8139 = "rtl8139"
)

// Models are all models of network interfaces.
var Models = []string{ModelVirtio, ModelE1000E, ModelE1000, ModelRTL8139}

const (
	minMTU, maxPort = 68, 65535
	maxQueues       = 256 // MAX_TAP_QUEUES of the Linux kernel
)

// interfacePattern matches what the kernel accepts (dev_valid_name), without what would need escapes.
var interfacePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,15}$`)

func (m Machine) checkNetworks(found *FieldErrors) {
	var addresses []string
	for i, n := range m.Networks {
		field := fmt.Sprintf("Networks[%d]", i)
		mac, err := net.ParseMAC(n.MAC)
		found.unless(err == nil && len(mac) == 6 && mac[0]&1 == 0, field+".MAC", "%q is not a unicast address such as 52:54:00:12:34:56", n.MAC)
		found.unless(!slices.Contains(addresses, mac.String()), field+".MAC", "%q is there twice", n.MAC)
		addresses = append(addresses, mac.String())
		n.checkLink(found, field)
		m.checkModel(n, found, field)
	}
}

func (m Machine) checkModel(n Network, found *FieldErrors, field string) {
	if n.virtio() {
		return
	}
	found.unless(slices.Contains(Models, n.Model), field+".Model", "%q is none of %s", n.Model, strings.Join(Models, ", "))
	found.unless(!m.microVM(), field+".Model", "a microvm has %s only", ModelVirtio)
	found.unless(n.MTU == 0, field+".MTU", "only %s announces it", ModelVirtio)
	found.unless(n.Queues <= 1, field+".Queues", "only %s has several", ModelVirtio)
	found.unless(!n.VHost, field+".VHost", "only %s has it", ModelVirtio)
}

func (n Network) virtio() bool { return n.Model == "" || n.Model == ModelVirtio }

func (n Network) checkLink(found *FieldErrors, field string) {
	found.unless(n.links() == 1, field, "it has one of Tap, SocketDescriptor and User")
	found.unless(n.SocketDescriptor == 0 || n.SocketDescriptor > 2, field+".SocketDescriptor", "%d is less than 3", n.SocketDescriptor)
	found.unless(n.Tap == "" || interfacePattern.MatchString(n.Tap), field+".Tap", "%q is not the name of an interface", n.Tap)
	found.unless(n.TapDescriptor == 0 || n.TapDescriptor > 2 && n.Tap != "" && n.Queues <= 1, field+".TapDescriptor", "it takes a Tap with one queue")
	found.unless(n.VHostDescriptor == 0 || n.VHostDescriptor > 2 && n.VHost, field+".VHostDescriptor", "it takes VHost")
	found.unless(n.MTU == 0 || n.MTU >= minMTU && n.MTU <= maxPort, field+".MTU", "%d is not between %d and %d", n.MTU, minMTU, maxPort)
	found.unless(n.Queues >= 0 && n.Queues <= maxQueues, field+".Queues", "%d is not between 0 and %d", n.Queues, maxQueues)
	found.unless(n.Queues <= 1 || n.Tap != "", field+".Queues", "only a tap interface has several")
	found.unless(!n.VHost || n.Tap != "", field+".VHost", "only a tap interface has it")
	if n.User == nil {
		return
	}
	subnet := n.User.Subnet
	found.unless(!subnet.IsValid() || subnet.Addr().Is4(), field+".User.Subnet", "%s is not an IPv4 network", subnet)
	for i, f := range n.User.Forwards {
		f.check(found, fmt.Sprintf("%s.User.Forwards[%d]", field, i))
	}
}

// links returns to how many things the interface is connected.
func (n Network) links() int {
	links := 0
	for _, there := range []bool{n.Tap != "", n.SocketDescriptor != 0, n.User != nil} {
		if there {
			links++
		}
	}
	return links
}

func (f Forward) check(found *FieldErrors, field string) {
	found.unless(slices.Contains([]string{"", "tcp", "udp"}, f.Protocol), field+".Protocol", "%q is neither tcp nor udp", f.Protocol)
	found.unless(!f.Address.IsValid() || f.Address.Is4(), field+".Address", "%s is not an IPv4 address", f.Address)
	found.unless(min(f.HostPort, f.GuestPort) >= 1 && max(f.HostPort, f.GuestPort) <= maxPort, field,
		"ports %d and %d are not both between 1 and %d", f.HostPort, f.GuestPort, maxPort)
}

func (f Forward) option() string {
	protocol, address := f.Protocol, f.Address
	if protocol == "" {
		protocol = "tcp"
	}
	if !address.IsValid() {
		address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return fmt.Sprintf("hostfwd=%s:%s:%d-:%d", protocol, address, f.HostPort, f.GuestPort)
}

func (m Machine) addNetworks(a *arguments) {
	for i, n := range m.Networks {
		link := fmt.Sprintf("net%d", i)
		a.add("-netdev", n.link("id="+link)...)
		model := n.Model
		if n.virtio() {
			model = m.device(ModelVirtio)
		}
		device := []string{model, fmt.Sprintf("id=nic%d", i), "netdev=" + link, "mac=" + strings.ToLower(n.MAC)}
		if n.MTU > 0 {
			device = append(device, fmt.Sprintf("host_mtu=%d", n.MTU))
		}
		if n.Queues > 1 {
			device = append(device, "mq=on")
		}
		if !m.microVM() {
			if n.Queues > 1 {
				// One interrupt for each queue, one for configuration changes and one for the control queue.
				device = append(device, fmt.Sprintf("vectors=%d", 2*n.Queues+2))
			}
			// Nothing boots from the network, and looking for it takes seconds.
			device = append(device, "romfile=")
		}
		a.add("-device", device...)
	}
}

func (n Network) link(id string) []string {
	if n.SocketDescriptor > 0 {
		return []string{"stream", id, "addr.type=fd", fmt.Sprintf("addr.str=%d", n.SocketDescriptor)}
	}
	if n.User == nil {
		link := []string{"tap", id, "ifname=" + n.Tap, "script=no", "downscript=no"}
		if n.TapDescriptor > 0 {
			link = []string{"tap", id, fmt.Sprintf("fd=%d", n.TapDescriptor)}
		}
		if n.Queues > 1 {
			link = append(link, fmt.Sprintf("queues=%d", n.Queues))
		}
		if n.VHost {
			link = append(link, "vhost=on")
			if n.VHostDescriptor > 0 {
				link = append(link, fmt.Sprintf("vhostfd=%d", n.VHostDescriptor))
			}
		}
		return link
	}
	link := []string{"user", id}
	if n.User.Subnet.IsValid() {
		link = append(link, "net="+n.User.Subnet.Masked().String())
	}
	if n.User.Isolated {
		link = append(link, "restrict=on")
	}
	for _, f := range n.User.Forwards {
		link = append(link, f.option())
	}
	return link
}
