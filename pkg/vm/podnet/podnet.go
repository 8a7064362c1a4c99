package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/guestnet"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/usernet"
)

// repairNetwork gives the pod its address back if an earlier runner of this pod took it and could not give it back.
func (r *Runner) repairNetwork(ctx context.Context, _ *prepared) error {
	if _, err := os.Stat(r.settings.networkState()); err != nil || r.settings.Network != NetworkPod {
		return nil //nolint:nilerr // without the file there is nothing to repair
	}
	network, err := guestnet.Take(ctx, r.networkOptions())
	if err != nil {
		return because(ReasonNetworkFailed, err)
	}
	return because(ReasonNetworkFailed, network.Close())
}

// takeNetwork gives the guest its network while the machine runs.
func (r *Runner) takeNetwork(ctx context.Context, p *prepared) error {
	switch r.settings.Network {
	case NetworkPod:
		return because(ReasonNetworkFailed, r.takePod(ctx, p))
	case NetworkProxy:
		return because(ReasonNetworkFailed, r.carry(ctx, p))
	}
	return nil
}

// takePod hands the pod's network over to the guest.
func (r *Runner) takePod(ctx context.Context, p *prepared) error {
	network, err := guestnet.Take(ctx, r.networkOptions())
	if err != nil {
		return err
	}
	p.onClose(network.Close)
	tap, err := network.OpenTap()
	if err != nil {
		return err
	}
	p.card = qemu.Network{Tap: network.Tap, TapDescriptor: p.give(tap), MAC: network.MAC.String(), MTU: network.MTU}
	if vhost, err := os.OpenFile("/dev/vhost-net", os.O_RDWR, 0); err == nil { // the host's kernel can move the packets
		p.card.VHost, p.card.VHostDescriptor = true, p.give(vhost)
	}
	address := network.Address4
	if !address.IsValid() {
		address = network.Address6
	}
	p.reach = reach{address: address, sent: network.Sent, client: healthClient((&net.Dialer{Timeout: healthTimeout}).DialContext)}
	r.serveNetwork(ctx, p, network.Serve)
	return nil
}

// carry makes the runner carry the guest's connections. Ports are published before the guest starts, so that a port
// that is already in use ends the runner.
func (r *Runner) carry(ctx context.Context, p *prepared) error {
	pod, err := guestnet.Inspect("")
	if err != nil {
		return fmt.Errorf("finding the pod's network: %w", err)
	}
	carried, err := guestnet.NewCarried(pod, r.networkOptions())
	if err != nil {
		return err
	}
	network, err := usernet.Open(usernet.Options{
		MAC: carried.MAC, Address: carried.Address, Gateway: carried.Gateway, GatewayMAC: carried.GatewayMAC, MTU: carried.MTU,
		Ports: r.settings.Ports, Answer: carried.Answer, Log: logr.FromSlogHandler(r.log.Handler()),
	})
	if err != nil {
		return err
	}
	p.onClose(network.Close)
	ours, theirs, err := socketPair()
	if err != nil {
		return fmt.Errorf("connecting the guest's card: %w", err)
	}
	p.card = qemu.Network{SocketDescriptor: p.give(theirs), MAC: carried.MAC.String(), MTU: carried.MTU}
	p.reach = reach{address: carried.Address, sent: network.Sent, client: healthClient(network.DialContext)}
	r.serveNetwork(ctx, p, func(ctx context.Context) error { return network.Serve(ctx, ours) })
	return nil
}

// serveNetwork serves a network until the machine has ended.
func (r *Runner) serveNetwork(ctx context.Context, p *prepared, serve func(context.Context) error) {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := serve(serving); err != nil && serving.Err() == nil {
			r.log.Error("The guest's network stopped", "error", err)
			r.board.set(func(s *Status) { s.Network = err.Error() })
		}
	}()
	p.onClose(func() error { stop(); <-ended; return nil })
}

// socketPair returns the two ends of a connection: the runner's and QEMU's.
func socketPair() (net.Conn, *os.File, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "card"), os.NewFile(uintptr(ends[1]), "card")
	conn, err := net.FileConn(ours)
	if err = errors.Join(err, ours.Close()); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn, theirs, nil
}

func (r *Runner) networkOptions() guestnet.Options {
	return guestnet.Options{
		Hostname: r.settings.Name, DNSServers: r.settings.DNSServers, NTPServers: r.settings.NTPServers,
		SearchDomains: r.settings.SearchDomains, ForeignSources: r.settings.ForeignSources,
		StateFile: r.settings.networkState(), Log: logr.FromSlogHandler(r.log.Handler()),
	}
}
