package runner

import (
	"context"
	"os"

	"github.com/go-logr/logr"

	"github.com/kvm-operator/kvm-operator/pkg/guestnet"
)

// repairNetwork gives the pod its address back that an earlier runner of this pod took and could not give back.
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

func (r *Runner) takeNetwork(ctx context.Context, p *prepared) error {
	if r.settings.Network != NetworkPod {
		return nil
	}
	network, err := guestnet.Take(ctx, r.networkOptions())
	if err != nil {
		return because(ReasonNetworkFailed, err)
	}
	p.network = network
	p.onClose(network.Close)
	if err := r.openNetwork(p); err != nil {
		return because(ReasonNetworkFailed, err)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := network.Serve(serving); err != nil {
			r.log.Error("The guest gets no address any more", "error", err)
			r.board.set(func(s *Status) { s.Network = err.Error() })
		}
	}()
	p.onClose(func() error { stop(); <-ended; return nil })
	return nil
}

// openNetwork opens the tap for QEMU, and the device of the host's kernel that moves packets if there is one.
func (r *Runner) openNetwork(p *prepared) error {
	tap, err := p.network.OpenTap()
	if err != nil {
		return err
	}
	p.tap = p.give(tap)
	if vhost, err := os.OpenFile("/dev/vhost-net", os.O_RDWR, 0); err == nil {
		p.vhost, p.vhostDevice = true, p.give(vhost)
	}
	return nil
}

func (r *Runner) networkOptions() guestnet.Options {
	return guestnet.Options{
		Hostname: r.settings.Name, DNSServers: r.settings.DNSServers, NTPServers: r.settings.NTPServers,
		SearchDomains: r.settings.SearchDomains, ForeignSources: r.settings.ForeignSources,
		StateFile: r.settings.networkState(), Log: logr.FromSlogHandler(r.log.Handler()),
	}
}
