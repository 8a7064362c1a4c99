package vmrunner

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-logr/logr"

	"github.com/kvm-operator/kvm-operator/pkg/vm/guestnet"
	"github.com/kvm-operator/kvm-operator/pkg/vm/hostbridge"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/podnet"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// networks returns the network interfaces of a machine. The cards are those that are connected to something outside of
// QEMU, by the interface's place.
func networks(m vmconfig.Machine, cards map[int]qemu.Network) ([]qemu.Network, error) {
	var found []qemu.Network
	var errs []error
	for i, n := range m.Networks {
		card := cards[i]
		if n.Type == vmconfig.NetworkUser {
			user, err := userNetwork(m, n)
			if err != nil {
				errs = append(errs, fmt.Errorf("network %d: %w", i, err))
			}
			card.User = user
		}
		card.Model, card.MAC = n.Device, cmp.Or(card.MAC, n.MAC, macOf(m, i))
		if !virtio(n) {
			card.MTU, card.VHost, card.VHostDescriptor = 0, false, 0
		}
		found = append(found, card)
	}
	return found, errors.Join(errs...)
}

// virtio returns whether a card takes what other models do not know.
func virtio(n vmconfig.Network) bool { return n.Device == "" || n.Device == qemu.ModelVirtio }

// userNetwork returns a network of QEMU's own. In the host's network, it would let the guest reach the host's loopback
// address, where other programs of the host trust their neighbors, so that there it leads nowhere.
func userNetwork(m vmconfig.Machine, n vmconfig.Network) (*qemu.UserNetwork, error) {
	user := &qemu.UserNetwork{Isolated: n.Isolated || m.Has(vmconfig.NetworkTap)}
	if n.Net != "" {
		subnet, err := netip.ParsePrefix(n.Net)
		if err != nil {
			return nil, fmt.Errorf("the net %q is no subnet such as 10.9.0.0/24", n.Net)
		}
		user.Subnet = subnet
	}
	return user, nil
}

// macOf returns the same address for the same interface of the same machine, because a guest may identify its interface
// by it. The first byte marks it as locally administered and unicast (IEEE 802, 8.2).
func macOf(m vmconfig.Machine, i int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", cmp.Or(m.UUID, m.Name), i))
	return net.HardwareAddr{0x02, sum[0], sum[1], sum[2], sum[3], sum[4]}.String()
}

// ownNetwork returns whether the pod has a network for itself, which QEMU may use: it is neither the host's nor the
// guest's.
func (s Settings) ownNetwork() bool {
	return !s.Machine.Has(vmconfig.NetworkTap) && !s.Machine.Has(vmconfig.NetworkPod)
}

// talks reports whether QEMU itself needs a network: for the guest's packets, or for viewers.
func (s Settings) talks() bool {
	return s.Machine.Has(vmconfig.NetworkUser) && s.ownNetwork() || s.spice() != nil
}

// openNetwork lets QEMU reach the network of the pod if its guest, or a medium, needs that.
func (p *preparation) openNetwork(context.Context) error {
	remote := slices.ContainsFunc(p.live.Media, func(text string) bool {
		where, err := place(text)
		return err == nil && where == inNetwork
	})
	if remote && p.settings.ownNetwork() {
		p.Jail.Offline = false
	}
	if !p.Jail.Offline {
		p.showCertificates()
	}
	return nil
}

// reachable returns why a CD with a URL cannot be inserted now; nil if it can.
func (p *preparation) reachable() error {
	switch {
	case !p.settings.ownNetwork():
		return errForeign
	case p.Jail.Offline:
		return errOffline
	}
	return nil
}

var (
	errOffline = errors.New("this QEMU cannot reach a network; a CD with a URL is inserted when the machine starts the next time")
	errForeign = errors.New("a machine with a network of type tap or pod has no network of its pod, from which a CD with a URL could be read: name a file of the image repository")
)

// connectCards connects cards to what is outside of QEMU.
func (p *preparation) connectCards(ctx context.Context) error {
	for i, n := range p.settings.Machine.Networks {
		var err error
		switch n.Type {
		case vmconfig.NetworkTap:
			err = p.joinBridge(i, n)
		case vmconfig.NetworkPod:
			p.cards[i], err = p.takePod(ctx)
		}
		if err != nil {
			return keeper.Failf(keeper.ReasonNetworkFailed, "network %d: %w", i, err)
		}
	}
	return nil
}

// joinBridge connects a card to a bridge of the host.
func (p *preparation) joinBridge(i int, n vmconfig.Network) error {
	port, err := hostbridge.Open(n.Bridge, fmt.Sprintf("network %d of the VirtualMachine %s, %s", i, p.settings.Name, p.settings.Machine.UUID))
	if err != nil {
		return err
	}
	p.log.Info("Connected the guest to a bridge", "network", i, "bridge", n.Bridge, "interface", port.Name)
	card := qemu.Network{Tap: port.Name, TapDescriptor: p.Give(port.Tap), MTU: port.MTU}
	if virtio(n) {
		if vhost, err := podnet.OpenVHost(); err == nil {
			card.VHost, card.VHostDescriptor = true, p.Give(vhost)
		}
	}
	p.cards[i] = card
	return nil
}

// takePod hands the network of the pod over to the guest.
func (p *preparation) takePod(ctx context.Context) (qemu.Network, error) {
	if err := os.MkdirAll(p.settings.State, 0o700); err != nil {
		return qemu.Network{}, err
	}
	return podnet.Take(ctx, p.Launch, p.podOptions())
}

func (p *preparation) podOptions() guestnet.Options {
	return guestnet.Options{
		StateFile: filepath.Join(p.settings.State, "network.json"), Hostname: p.settings.Machine.Name, Log: logr.FromSlogHandler(p.log.Handler()),
		DNSServers: p.settings.DNSServers, SearchDomains: p.settings.SearchDomains,
	}
}
