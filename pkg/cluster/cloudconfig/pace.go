package cloudconfig

import (
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pace"
)

// emulatedSlowness is by which factor the components of an emulated node probe each other less often, and wait longer
// before they time out. A TLS handshake costs such a node 20 ms of a processor, and a component that times out has to
// repeat all its work.
const emulatedSlowness = 3

// slowness is the factor of all times between components of this node: probes, leader election, leases.
func (p Params) slowness() int32 {
	if p.Emulated {
		return emulatedSlowness
	}
	return 1
}

// slowed returns a time for nodes on KVM, extended for this node.
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
