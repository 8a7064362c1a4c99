package vmrunner

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// networks returns the network interfaces of a machine.
func networks(m vmconfig.Machine) ([]qemu.Network, error) {
	var found []qemu.Network
	var errs []error
	for i, n := range m.Networks {
		network, err := userNetwork(m, i, n)
		if err != nil {
			errs = append(errs, fmt.Errorf("network %d: %w", i, err))
		}
		found = append(found, network)
	}
	return found, errors.Join(errs...)
}

func userNetwork(m vmconfig.Machine, i int, n vmconfig.Network) (qemu.Network, error) {
	if n.Type != vmconfig.NetworkUser {
		return qemu.Network{}, fmt.Errorf("this runner has no networks of type %s yet: use user", n.Type)
	}
	user := &qemu.UserNetwork{}
	if n.Net != "" {
		subnet, err := netip.ParsePrefix(n.Net)
		if err != nil {
			return qemu.Network{}, fmt.Errorf("the net %q is no subnet such as 10.9.0.0/24", n.Net)
		}
		user.Subnet = subnet
	}
	return qemu.Network{Model: n.Device, MAC: cmp.Or(n.MAC, macOf(m, i)), User: user}, nil
}

// macOf returns the same address for the same interface of the same machine, because a guest may identify its interface
// by it. The first byte marks it as locally administered and unicast (IEEE 802, 8.2).
func macOf(m vmconfig.Machine, i int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", cmp.Or(m.UUID, m.Name), i))
	return net.HardwareAddr{0x02, sum[0], sum[1], sum[2], sum[3], sum[4]}.String()
}

// talks reports whether QEMU itself needs a network: for the guest's packets, or for viewers.
func (s Settings) talks() bool { return len(s.Machine.Networks) > 0 || s.spice() != nil }
