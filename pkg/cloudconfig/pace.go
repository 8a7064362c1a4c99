package cloudconfig

import "time"

// emulatedSlowness is how many times rarer the parts of an emulated node ask each other how they are, and how many times
// longer they wait before they give each other up. A handshake costs such a node a tenth of a second of a processor, and one
// that gives up begins anew with all that it had done already.
const emulatedSlowness = 3

// lazyCollector has Go programs of an emulated node collect garbage when there is four times as much as what is in use, not
// twice: memory is what such a node has plenty of.
// See https://go.dev/doc/gc-guide#GOGC.
const lazyCollector = "300"

// slowness is the factor of all times that parts of this node have with each other: probes, leader election, leases.
func (p Params) slowness() int32 {
	if p.Emulated {
		return emulatedSlowness
	}
	return 1
}

// slowed is a time for nodes on KVM, made longer for this one.
func (p Params) slowed(d time.Duration) string { return (d * time.Duration(p.slowness())).String() }
