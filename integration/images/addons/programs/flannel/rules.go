package main

import (
	"context"
	"fmt"

	"github.com/flannel-io/flannel/pkg/lease"
	"github.com/flannel-io/flannel/pkg/subnet"
	"github.com/flannel-io/flannel/pkg/trafficmngr"
	"github.com/flannel-io/flannel/pkg/trafficmngr/iptables"
	"github.com/flannel-io/flannel/pkg/trafficmngr/nftables"
)

// setRules installs the rules that forward and masquerade the packets of pods, and maintains them until ctx ends. It
// removes rules of the other kind from an earlier configuration.
func setRules(ctx context.Context, config *subnet.Config, own *lease.Lease, o options) error {
	if err := rulesOf(!config.EnableNFTables).CleanUp(ctx); err != nil {
		return fmt.Errorf("removing rules of an earlier configuration: %w", err)
	}
	rules := rulesOf(config.EnableNFTables)
	if err := rules.Init(ctx); err != nil {
		return fmt.Errorf("preparing packet filter rules: %w", err)
	}
	if o.masquerade {
		before := readPrevious(o.subnetPath)
		err := rules.SetupAndEnsureMasqRules(ctx, config.Network, before.subnet, before.network,
			config.IPv6Network, before.subnet6, before.network6, own, o.resyncSeconds, o.notFullyRandom)
		if err != nil {
			return fmt.Errorf("masquerading: %w", err)
		}
	}
	if o.forwardRules {
		rules.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, o.resyncSeconds)
	}
	return nil
}

func rulesOf(nft bool) trafficmngr.TrafficManager {
	if nft {
		return &nftables.NFTablesManager{}
	}
	return &iptables.IPTablesManager{}
}
