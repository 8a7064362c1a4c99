package state

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/vm/cloudmetadata"
)

// Egress says what guests may reach. The zero value blocks everything that is known to belong to the management
// cluster.
type Egress struct {
	// Open does not restrict the guests' egress.
	Open bool
	// HostCIDRs are the networks of the hosts of the management cluster.
	HostCIDRs []string
	// Allowed are networks and addresses that guests may reach nonetheless.
	Allowed []string
}

// metadata are the addresses of the clouds' metadata services. They are the same everywhere.
var metadata = append([]string{cloudmetadata.LinkLocal}, cloudmetadata.Networks...)

// Validate returns what is wrong with the settings.
func (s Settings) Validate() error {
	return errors.Join(s.Guest.Validate(), s.validateNetworks())
}

func (s Settings) validateNetworks() error {
	var errs []error
	for _, list := range []struct {
		name  string
		cidrs []string
	}{
		{"service.installation.podcidrs", s.PodCIDRs},
		{"service.installation.servicecidrs", s.ServiceCIDRs},
		{"service.installation.hostcidrs", s.Egress.HostCIDRs},
		{"service.egress.allowed", s.Egress.Allowed},
	} {
		for _, cidr := range list.cidrs {
			if prefix, err := Network(cidr); err != nil || prefix.Bits() == 0 {
				errs = append(errs, fmt.Errorf("%s: %q is not a network like 10.0.0.0/16", list.name, cidr))
			}
		}
	}
	return errors.Join(errs...)
}

// Network parses a network, or the address of a single machine.
func Network(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, err
		}
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	return prefix.Masked(), err
}

// Forbidden returns the networks that guests may not reach, as far as they are known.
func (s Settings) Forbidden() []netip.Prefix {
	return networks(metadata, s.PodCIDRs, s.ServiceCIDRs, s.Egress.HostCIDRs)
}

// networks returns those of all lists, each once, in an order that does not depend on theirs. Malformed ones were
// rejected at start.
func networks(lists ...[]string) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, text := range slices.Concat(lists...) {
		if prefix, err := Network(text); err == nil {
			prefixes = append(prefixes, prefix)
		}
	}
	slices.SortFunc(prefixes, comparePrefixes)
	return slices.Compact(prefixes)
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// Exceptions returns the networks that guests may reach although they may belong to the management cluster.
func (s Settings) Exceptions() []netip.Prefix { return networks(s.Egress.Allowed) }

// Unknown returns the settings without which guests can reach parts of the management cluster.
func (s Settings) Unknown() []string {
	var missing []string
	for _, list := range []struct {
		name  string
		cidrs []string
	}{
		{"service.installation.podcidrs", s.PodCIDRs},
		{"service.installation.servicecidrs", s.ServiceCIDRs},
		{"service.installation.hostcidrs", s.Egress.HostCIDRs},
	} {
		if len(list.cidrs) == 0 {
			missing = append(missing, list.name)
		}
	}
	return missing
}

// Helper is a server that the settings make guests use, by its address.
type Helper struct {
	Address netip.Addr
	Port    int32
	UDP     bool
}

// Helpers returns the servers in the settings that are given by address: registries, mirrors, proxies, sources of
// images and kubelets, and time servers. Servers with a host name are not known here; if they are in the management
// cluster, their networks have to be allowed.
func (s Settings) Helpers() []Helper {
	urls := append([]string{
		s.Guest.RegistryDomain, s.Guest.Proxy.HTTP, s.Guest.Proxy.HTTPS, s.Guest.BinaryBaseURL, s.Guest.OIDC.IssuerURL, s.FlatcarMirror,
	}, s.Guest.RegistryMirrors...)
	var helpers []Helper
	for _, text := range urls {
		if helper, ok := helperOf(text); ok {
			helpers = append(helpers, helper)
		}
	}
	for _, server := range s.Guest.NTPServers {
		if address, err := netip.ParseAddr(server); err == nil {
			helpers = append(helpers, Helper{Address: address, Port: portNTP, UDP: true})
		}
	}
	slices.SortFunc(helpers, func(a, b Helper) int { return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port)) })
	return slices.Compact(helpers)
}

const (
	portNTP  = 123
	portHTTP = 80
)

// helperOf parses a URL, or a host with or without port and path, as registries are written.
func helperOf(text string) (Helper, bool) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	parsed, err := url.Parse(text)
	if err != nil {
		return Helper{}, false
	}
	address, err := netip.ParseAddr(parsed.Hostname())
	if err != nil {
		return Helper{}, false
	}
	helper := Helper{Address: address, Port: portHTTPS}
	if parsed.Scheme == "http" {
		helper.Port = portHTTP
	}
	if port, err := strconv.ParseUint(parsed.Port(), 10, 16); err == nil {
		helper.Port = int32(port)
	}
	return helper, true
}
