package cluster

import (
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// openEgress reports what guests can reach and should not, and which settings close it; it reports nothing if nothing
// is open, or if it is open on purpose.
func openEgress(settings state.Settings) []chain.Result {
	unknown := settings.Unknown()
	if len(unknown) == 0 || settings.Egress.Open {
		return nil
	}
	parts := map[string]string{
		"service.installation.podcidrs": "pods", "service.installation.servicecidrs": "Services", "service.installation.hostcidrs": "hosts",
	}
	var open []string
	for _, setting := range unknown {
		open = append(open, parts[setting])
	}
	return note("networkpolicy", ConditionInfrastructure, "NetworksUnknown", "guests reach "+strings.Join(open, ", ")+
		" of the management cluster, because the operator does not know their networks: set "+strings.Join(unknown, ", "))
}
