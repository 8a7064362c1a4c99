package addons

import (
	"fmt"
	"net/netip"
)

// Network is a network and its name in a sentence.
type Network struct {
	// Name is for people, such as "the pod network of the management cluster".
	Name string
	// CIDR is the network. A malformed or empty one overlaps nothing: it is reported where it is validated.
	CIDR string
}

// Overlap names in a sentence the first network of a workload cluster that overlaps another of its own or one of the
// others; empty if there is none. Guests have addresses of the management cluster's pods and reach its Services, so if
// one of their own networks contained those, packets would be misrouted.
func Overlap(own, others []Network) string {
	for i, network := range own {
		for _, other := range append(own[i+1:len(own):len(own)], others...) {
			if overlaps(network.CIDR, other.CIDR) {
				return fmt.Sprintf("%s, %s, overlaps %s, %s; choose another one", network.Name, network.CIDR, other.Name, other.CIDR)
			}
		}
	}
	return ""
}

func overlaps(a, b string) bool {
	first, errA := netip.ParsePrefix(a)
	second, errB := netip.ParsePrefix(b)
	return errA == nil && errB == nil && first.Overlaps(second)
}
