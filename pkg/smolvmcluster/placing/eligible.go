package placing

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// HeartbeatTimeout is for how long a report of a runtime counts.
const HeartbeatTimeout = 2 * time.Minute

// Eligible returns whether a runtime can be asked: it reported lately that it works, and where. A node without KVM is
// eligible if its runtime emulates, which it says only where it may.
func Eligible(node *v1alpha1.SmolVMNode, now time.Time) bool {
	status := &node.Status
	holds := func(kind string) bool { return meta.IsStatusConditionTrue(status.Conditions, kind) }
	return holds(v1alpha1.ConditionReady) && holds(v1alpha1.ConditionRuntimeReady) && holds(v1alpha1.NodeConditionSchedulable) &&
		(holds(v1alpha1.NodeConditionKVM) || status.Accelerator == v1alpha1.AcceleratorTCG) &&
		(status.ProtocolVersion == "" || status.ProtocolVersion == v1alpha1.ProtocolVersion) &&
		status.HeartbeatTime != nil && now.Sub(status.HeartbeatTime.Time) <= HeartbeatTimeout &&
		status.Endpoint.PodIP != "" && status.Endpoint.Port > 0
}

// repels returns whether a taint keeps a SmolVM with these tolerations away. Taints that only prefer are ignored.
func repels(taint *corev1.Taint, tolerations []corev1.Toleration) bool {
	if taint.Effect != corev1.TaintEffectNoSchedule && taint.Effect != corev1.TaintEffectNoExecute {
		return false
	}
	return !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool { return tolerates(t, taint) })
}

// tolerates is the rule of Kubernetes (k8s.io/api/core/v1 Toleration.ToleratesTaint), without comparisons of numbers, which
// the API server does not accept here.
func tolerates(t corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case corev1.TolerationOpExists:
		return true
	case "", corev1.TolerationOpEqual:
		return t.Key != "" && t.Value == taint.Value
	}
	return false
}
