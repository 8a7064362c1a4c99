package cloudconfig

import (
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/pace"
)

// emulatedSlowness is how many times rarer the parts of an emulated node ask each other how they are, and how many times
// longer they wait before they give each other up. A TLS handshake costs such a node 20 ms of a processor, and one that
// gives up begins anew with all that it had done already.
const emulatedSlowness = 3

// slowness is the factor of all times that parts of this node have with each other: probes, leader election, leases.
func (p Params) slowness() int32 {
	if p.Emulated {
		return emulatedSlowness
	}
	return 1
}

// slowed is a time for nodes on KVM, made longer for this one.
func (p Params) slowed(d time.Duration) string { return (d * time.Duration(p.slowness())).String() }

// services is the environment of all services of an emulated node.
func services() file {
	var assignments []string
	for _, variable := range pace.Emulated() {
		assignments = append(assignments, variable.Name+"="+variable.Value)
	}
	text := "[Manager]\nDefaultEnvironment=" + strings.Join(assignments, " ") + "\n"
	return file{path: "/etc/systemd/system.conf.d/10-kvm-operator.conf", mode: modePublic, text: text}
}
