package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/flannel-io/flannel/pkg/backend"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet"
	"k8s.io/klog/v2"
)

// candidate is one way to find an interface; see ipmatch.LookupExtIface.
type candidate struct{ name, pattern, reaches string }

// candidates returns the ways that the flags name, in order. Without flags, it is the interface of the default route.
func (o *options) candidates(publicIP string) []candidate {
	var all []candidate
	for _, name := range o.interfaces {
		all = append(all, candidate{name: name})
	}
	for _, pattern := range o.interfacePatterns {
		all = append(all, candidate{pattern: pattern})
	}
	if o.interfaceReaches != "" {
		all = append(all, candidate{reaches: o.interfaceReaches})
	}
	if len(all) == 0 {
		return []candidate{{name: publicIP}}
	}
	return all
}

// externalInterface returns the interface for encapsulated packets. The public addresses in a node's annotations
// override those of the flags, as in flanneld.
func externalInterface(ctx context.Context, subnets subnet.Manager, config *subnet.Config, o options) (*backend.ExternalInterface, error) {
	family, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	if err != nil {
		return nil, fmt.Errorf("the network has neither IPv4 nor IPv6: %w; see EnableIPv4 in %s", err, o.configPath)
	}
	public := ipmatch.PublicIPOpts{PublicIP: o.publicIP, PublicIPv6: o.publicIPv6}
	stored, storedIPv6 := subnets.GetStoredPublicIP(ctx)
	if stored != "" {
		public.PublicIP = stored
	}
	if storedIPv6 != "" {
		public.PublicIPv6 = storedIPv6
	}
	only := public.PublicIP
	if only == "" {
		only = public.PublicIPv6
	}
	return firstInterface(o.candidates(only), family, public)
}

func firstInterface(candidates []candidate, family int, public ipmatch.PublicIPOpts) (*backend.ExternalInterface, error) {
	var reasons []error
	for _, c := range candidates {
		iface, err := ipmatch.LookupExtIface(c.name, c.pattern, c.reaches, family, public)
		if err == nil && iface != nil {
			klog.InfoS("Found the interface", "name", iface.Iface.Name, "address", iface.IfaceAddr, "public", iface.ExtAddr)
			return iface, nil
		}
		reasons = append(reasons, err)
	}
	return nil, fmt.Errorf("no interface fits: %w", errors.Join(reasons...))
}
