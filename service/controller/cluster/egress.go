package cluster

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	snapshot "github.com/kvm-operator/kvm-operator/pkg/cluster"
)

// ConditionEgressOpen is True while guests reach parts of the management cluster because settings are missing.
const ConditionEgressOpen = "EgressOpen"

// openEgress says what guests reach that they should not, and which settings close it; nil when nothing is open, or when it is wanted so.
func openEgress(settings snapshot.Settings) *metav1.Condition {
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
	return &metav1.Condition{
		Type: ConditionEgressOpen, Status: metav1.ConditionTrue, Reason: "NetworksUnknown",
		Message: "guests reach " + strings.Join(open, ", ") + " of the management cluster, because the operator does not know their networks: set " + strings.Join(unknown, ", "),
	}
}
