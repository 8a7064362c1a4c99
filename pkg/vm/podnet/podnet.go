// Package podnet gives a guest the network of its pod: the guest takes it over, or the keeper carries the guest's
// connections.
package podnet

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/kvm-operator/kvm-operator/pkg/vm/guestnet"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/usernet"
)

// Repair gives the pod its address back if an earlier keeper of this pod took it and could not give it back.
func Repair(ctx context.Context, options guestnet.Options) error {
	if _, err := os.Stat(options.StateFile); err != nil {
		return nil //nolint:nilerr // without the file there is nothing to repair
	}
	network, err := guestnet.Take(ctx, options)
	if err != nil {
		return err
	}
	return network.Close()
}

// Take hands the pod's network over to the guest, and returns the guest's card.
func Take(ctx context.Context, l *keeper.Launch, options guestnet.Options) (qemu.Network, error) {
	network, err := guestnet.Take(ctx, options)
	if err != nil {
		return qemu.Network{}, err
	}
	l.OnClose(network.Close)
	tap, err := network.OpenTap()
	if err != nil {
		return qemu.Network{}, err
	}
	card := qemu.Network{Tap: network.Tap, TapDescriptor: l.Give(tap), MAC: network.MAC.String(), MTU: network.MTU}
	if vhost, err := OpenVHost(); err == nil {
		card.VHost, card.VHostDescriptor = true, l.Give(vhost)
	}
	address := network.Address4
	if !address.IsValid() {
		address = network.Address6
	}
	l.Reach = keeper.Reach{Address: address, Sent: network.Sent, Dial: new(net.Dialer).DialContext}
	l.ServeNetwork(ctx, network.Serve)
	return card, nil
}

// OpenVHost opens the device by which the host's kernel moves a guest's packets. Not every host, and not every pod, has
// it.
func OpenVHost() (*os.File, error) { return os.OpenFile("/dev/vhost-net", os.O_RDWR, 0) }

// Carry makes the keeper carry the guest's connections, and returns the guest's card. Ports are published before the
// guest starts, so that a port that is already in use ends the keeper.
func Carry(ctx context.Context, l *keeper.Launch, options guestnet.Options, ports []usernet.Port) (qemu.Network, error) {
	pod, err := guestnet.Inspect("")
	if err != nil {
		return qemu.Network{}, fmt.Errorf("finding the pod's network: %w", err)
	}
	carried, err := guestnet.NewCarried(pod, options)
	if err != nil {
		return qemu.Network{}, err
	}
	network, err := usernet.Open(usernet.Options{
		MAC: carried.MAC, Address: carried.Address, Gateway: carried.Gateway, GatewayMAC: carried.GatewayMAC, MTU: carried.MTU,
		Ports: ports, Answer: carried.Answer, Log: options.Log,
	})
	if err != nil {
		return qemu.Network{}, err
	}
	l.OnClose(network.Close)
	ours, theirs, err := usernet.Card()
	if err != nil {
		return qemu.Network{}, fmt.Errorf("connecting the guest's card: %w", err)
	}
	l.Reach = keeper.Reach{Address: carried.Address, Sent: network.Sent, Dial: network.DialContext}
	l.ServeNetwork(ctx, func(ctx context.Context) error { return network.Serve(ctx, ours) })
	return qemu.Network{SocketDescriptor: l.Give(theirs), MAC: carried.MAC.String(), MTU: carried.MTU}, nil
}
