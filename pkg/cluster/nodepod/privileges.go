package nodepod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// takeover are the capabilities by which the guest takes over the pod's network, which needs a bridge and a tap in it.
var takeover = []corev1.Capability{"NET_ADMIN", "NET_RAW"}

// capabilities are the other capabilities that a runner needs if it is not privileged. The Pod Security level baseline
// permits them.
var capabilities = []corev1.Capability{
	"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", // shares: files of the guest change their owner on the host
	"KILL", "SETGID", "SETPCAP", "SETUID", // QEMU: it runs as another user, without capabilities
}

// securityContext is privileged only if no device plugin provides the devices of a machine, because then there is no
// other way to access them.
func securityContext(settings state.MachineSettings) *corev1.SecurityContext {
	if len(settings.DeviceResources) == 0 {
		return &corev1.SecurityContext{Privileged: ptr.To(true), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}}
	}
	needed := slices.Concat(takeover, capabilities)
	if settings.Baseline() {
		needed = slices.Concat(capabilities, []corev1.Capability{"NET_BIND_SERVICE"}) // the guest's port of SSH
	}
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: needed},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// MachineResources returns Resources with one of each resource of the device plugins.
func MachineResources(s *state.Cluster, n state.Node) corev1.ResourceRequirements {
	r := Resources(s, n)
	for _, name := range s.Settings.Machine.DeviceResources {
		r.Requests[corev1.ResourceName(name)] = *resource.NewQuantity(1, resource.DecimalSI)
		r.Limits[corev1.ResourceName(name)] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	return r
}
