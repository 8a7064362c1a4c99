package main

import (
	"math/big"
	"net"
	"os"
	"strings"

	"github.com/flannel-io/flannel/pkg/ip"
)

// previous is what an earlier flanneld left in the subnet file. Its rules have to be removed if its networks differ.
// Missing or unreadable values are empty networks and never nil because flannel's packages compare them.
type previous struct {
	network, subnet   ip.IP4Net
	network6, subnet6 ip.IP6Net
}

func readPrevious(path string) previous {
	none := ip.IP6Net{IP: (*ip.IP6)(new(big.Int))}
	p := previous{network6: none, subnet6: none}
	content, err := os.ReadFile(path)
	if err != nil {
		return p
	}
	for line := range strings.Lines(string(content)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		_, network, err := net.ParseCIDR(value)
		if err != nil {
			continue
		}
		switch key {
		case "FLANNEL_NETWORK":
			p.network = ip.FromIPNet(network)
		case "FLANNEL_SUBNET":
			p.subnet = ip.FromIPNet(network)
		case "FLANNEL_IPV6_NETWORK":
			p.network6 = ip.FromIP6Net(network)
		case "FLANNEL_IPV6_SUBNET":
			p.subnet6 = ip.FromIP6Net(network)
		}
	}
	return p
}
