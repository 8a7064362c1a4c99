package noderunner

import (
	"context"

	"github.com/go-logr/logr"

	"github.com/kvm-operator/kvm-operator/pkg/vm/guestnet"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/podnet"
)

// Names of networks.
const (
	// NetworkPod gives the machine the address of the pod.
	NetworkPod = "pod"
	// NetworkProxy also gives the machine the address of the pod, but the pod keeps its network: the runner carries the
	// guest's connections. It needs no privileges. Other hosts reach the guest only at Settings.Ports.
	NetworkProxy = "proxy"
	// NetworkUser puts the machine behind QEMU's own address translation. It needs no privileges, and the guest cannot
	// be reached.
	NetworkUser = "user"
)

// repairNetwork gives the pod its address back if an earlier runner of this pod took it and could not give it back.
func (p *preparation) repairNetwork(ctx context.Context) error {
	if p.settings.Network != NetworkPod {
		return nil
	}
	return keeper.Because(keeper.ReasonNetworkFailed, podnet.Repair(ctx, p.networkOptions()))
}

// takeNetwork gives the guest its network while the machine runs.
func (p *preparation) takeNetwork(ctx context.Context) (err error) {
	switch p.settings.Network {
	case NetworkPod:
		p.card, err = podnet.Take(ctx, p.Launch, p.networkOptions())
	case NetworkProxy:
		p.card, err = podnet.Carry(ctx, p.Launch, p.networkOptions(), p.settings.Ports)
	}
	return keeper.Because(keeper.ReasonNetworkFailed, err)
}

func (p *preparation) networkOptions() guestnet.Options {
	s := p.settings
	return guestnet.Options{
		Hostname: s.Name, DNSServers: s.DNSServers, NTPServers: s.NTPServers, SearchDomains: s.SearchDomains, ForeignSources: s.ForeignSources,
		StateFile: s.networkState(), Log: logr.FromSlogHandler(p.log.Handler()),
	}
}
