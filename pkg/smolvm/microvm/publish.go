package microvm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// PortRange is a range of TCP ports. Both ends belong to it.
type PortRange struct{ First, Last uint16 }

// PortRanges are the ports of the host that machines may publish. Without ranges, machines may publish none.
type PortRanges []PortRange

// AllPorts are the ports that smolvm publishes: all of them.
const AllPorts = "1-65535"

// ParsePortRanges parses ranges and single ports with commas between them, such as 1024-10247,18080. Ports are 1 to 65535.
// The order does not matter, and ranges may overlap.
func ParsePortRanges(text string) (PortRanges, error) {
	var ranges PortRanges
	for part := range strings.SplitSeq(text, ",") {
		one, err := parsePortRange(part)
		if err != nil {
			return nil, fmt.Errorf("parsing the ports %.64q: %w", part, err)
		}
		ranges = append(ranges, one)
	}
	return ranges, nil
}

func parsePortRange(text string) (PortRange, error) {
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	first, err := strconv.ParseUint(low, 10, 16)
	last, err2 := strconv.ParseUint(high, 10, 16)
	if err != nil || err2 != nil || first == 0 || last == 0 {
		return PortRange{}, errors.New("they are neither a port from 1 to 65535 nor a range such as 1024-10247")
	}
	if first > last {
		return PortRange{}, fmt.Errorf("the range ends before it begins; write %d-%d", last, first)
	}
	return PortRange{First: uint16(first), Last: uint16(last)}, nil
}

// String returns the ranges in the form that ParsePortRanges reads.
func (p PortRanges) String() string {
	var texts []string
	for _, r := range p {
		if r.First == r.Last {
			texts = append(texts, strconv.Itoa(int(r.First)))
			continue
		}
		texts = append(texts, fmt.Sprintf("%d-%d", r.First, r.Last))
	}
	return strings.Join(texts, ",")
}

// Contains reports whether a port is in one of the ranges.
func (p PortRanges) Contains(port uint16) bool {
	return slices.ContainsFunc(p, func(r PortRange) bool { return r.First <= port && port <= r.Last })
}

// errClosed begins the message about ports that another server might publish.
var errClosed = errors.New("this server publishes only the host ports")

// check refuses ports outside of the ranges. A port 0 is wrong everywhere, see Spec.checkPorts.
func (p PortRanges) check(ports []api.Port) error {
	var closed []string
	for _, port := range ports[:min(len(ports), maxPorts)] {
		if port.Host != 0 && !p.Contains(port.Host) {
			closed = append(closed, strconv.Itoa(int(port.Host)))
		}
	}
	if len(closed) == 0 {
		return nil
	}
	return fmt.Errorf("%w %s, and not %s", errClosed, p, strings.Join(closed, ", "))
}

// checkStart refuses to start a machine with such ports: a server with other ranges may have created it.
func (p PortRanges) checkStart(r Record) error {
	if err := p.check(r.Spec.Ports); err != nil {
		return api.Errorf(codeOf(err), "machine '%s' did not start: %v", r.Name, err)
	}
	return nil
}
