package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan" // registers itself
	"github.com/flannel-io/flannel/pkg/subnet"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"k8s.io/klog/v2"
)

// run adds this host to the pod network until ctx ends. Its steps are in flanneld's order: the subnet file is written
// last because the CNI plugin takes it as the sign that pods can be connected.
func run(ctx context.Context, o options) error {
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()

	if o.healthPort > 0 {
		if err := serveHealth(ctx, &background, o.healthIP, o.healthPort); err != nil {
			return err
		}
	}
	subnets, err := subnetManager(ctx, o)
	if err != nil {
		return err
	}
	config, err := subnets.GetNetworkConfig(ctx)
	if err != nil {
		return fmt.Errorf("reading the configuration of the network: %w", err)
	}
	network, err := register(ctx, &background, subnets, config, o)
	if err != nil {
		return err
	}
	if err := setRules(ctx, config, network.Lease(), o); err != nil {
		return err
	}
	lease := network.Lease()
	if err := subnets.HandleSubnetFile(o.subnetPath, config, o.masquerade, lease.Subnet, lease.IPv6Subnet, network.MTU()); err != nil {
		return fmt.Errorf("writing %s: %w", o.subnetPath, err)
	}
	klog.InfoS("Joined the pod network", "subnet", lease.Subnet, "mtu", network.MTU(), "subnetFile", o.subnetPath)
	background.Go(func() { network.Run(ctx) })
	if err := subnets.CompleteLease(ctx, lease, &background); err != nil {
		return fmt.Errorf("telling the API server that the network is up: %w", err)
	}
	<-ctx.Done()
	return ctx.Err()
}

// subnetManager waits until the Nodes of the API server are known.
func subnetManager(ctx context.Context, o options) (subnet.Manager, error) {
	manager, err := kube.NewSubnetManager(ctx, o.kubeAPIURL, o.kubeconfig, o.annotationPrefix, o.configPath, o.networkUnavailable)
	goOn := os.Getenv("CONT_WHEN_CACHE_NOT_READY") == "true" && errors.Is(err, context.DeadlineExceeded)
	if err != nil && !goOn {
		return nil, fmt.Errorf("asking the API server for nodes: %w", err)
	}
	return manager, nil
}

// register creates the device of the pod network and announces it in the annotations of this node.
func register(ctx context.Context, background *sync.WaitGroup, subnets subnet.Manager, config *subnet.Config, o options) (backend.Network, error) {
	if err := bridgeFilter(config); err != nil {
		return nil, err
	}
	iface, err := externalInterface(ctx, subnets, config, o)
	if err != nil {
		return nil, err
	}
	kind, err := backend.NewManager(ctx, subnets, iface).GetBackend(config.BackendType)
	if err != nil {
		return nil, fmt.Errorf("backend %q of %s: %w; there is vxlan only", config.BackendType, o.configPath, err)
	}
	network, err := kind.RegisterNetwork(ctx, background, config)
	if err != nil {
		return nil, fmt.Errorf("setting up %s on %s: %w", config.BackendType, iface.Iface.Name, err)
	}
	return network, nil
}

// bridgeFilter reports a kernel that does not pass bridged packets to iptables. On such a kernel, Services between pods
// of one node would fail silently.
func bridgeFilter(config *subnet.Config) error {
	if config.EnableNFTables {
		return nil
	}
	if _, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables"); err != nil {
		return fmt.Errorf("the host lacks the kernel module br_netfilter: %w; load it with modprobe br_netfilter", err)
	}
	return nil
}
