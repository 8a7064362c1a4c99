package joining

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// Labels of Nodes that only the operator can set, because NodeRestriction does not allow kubelets to set their own
// role.
const (
	labelRolePrefix = "node-role.kubernetes.io/"
	labelRole       = "kubernetes.io/role"
	labelProvider   = "giantswarm.io/provider"
	provider        = "kvm"
)

// Labels returns the labels that a Node gets through the API: its role as kubectl and selectors know it, and what
// readers of the original's labels expect. cluster is the cluster's ID, and version the operator version in the label
// of the node's pod, empty for none. The kubelet sets other labels itself when it registers.
func Labels(cluster, role, version string) map[string]string {
	labels := map[string]string{labelRole: role, labelProvider: provider, key.LabelGSCluster: cluster}
	if role == key.RoleMaster {
		labels[labelRolePrefix+"control-plane"] = ""
	}
	labels[labelRolePrefix+role] = ""
	if version != "" {
		labels[key.LabelVersion] = version
	}
	return labels
}

// Missing returns the wanted labels that the Node does not have, or has with another value; nil if there are none.
func Missing(node metav1.Object, want map[string]string) map[string]string {
	var missing map[string]string
	have := node.GetLabels()
	for name, value := range want {
		if current, ok := have[name]; ok && current == value {
			continue
		}
		if missing == nil {
			missing = map[string]string{}
		}
		missing[name] = value
	}
	return missing
}

// Ready returns whether a Node reports that it is Ready; false if it does not exist.
func Ready(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Reasons of the readiness gate if the Node gives none.
const (
	ReasonNodeDeleted = "NodeDeleted"
	ReasonNodeMissing = "NodeMissing"
	ReasonNodeSilent  = "NodeSilent"
)

// longestReason is how many bytes of a reason are passed on, because root on a node can write anything to the status of
// its Node.
const longestReason = 128

// NodeReady returns the readiness gate of the pod of the given Node; nil means that there is no Node. It does not set
// times, because the writer sets them.
func NodeReady(node *corev1.Node) corev1.PodCondition {
	if node == nil {
		return gate(corev1.ConditionFalse, ReasonNodeMissing, "no node in workload cluster")
	}
	if node.DeletionTimestamp != nil {
		return gate(corev1.ConditionFalse, ReasonNodeDeleted, "node deleted in workload cluster")
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return gate(known(c.Status), text.Beginning(c.Reason, longestReason), text.Steady(c.Message))
		}
	}
	return gate(corev1.ConditionUnknown, ReasonNodeSilent, "the kubelet has not reported yet")
}

func gate(status corev1.ConditionStatus, reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: key.ConditionNodeReady, Status: status, Reason: reason, Message: message}
}

// known returns Unknown for every status that is neither True nor False, because a pod accepts no other value.
func known(status corev1.ConditionStatus) corev1.ConditionStatus {
	if status == corev1.ConditionTrue || status == corev1.ConditionFalse {
		return status
	}
	return corev1.ConditionUnknown
}

// Changed returns whether the condition differs from that of the pod.
func Changed(pod *corev1.Pod, condition corev1.PodCondition) bool {
	return !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == condition.Type && c.Status == condition.Status && c.Reason == condition.Reason && c.Message == condition.Message
	})
}

// Ours returns whether the operator has labeled the Node, as it does with each Node of a node pod of the cluster.
func Ours(node metav1.Object, cluster string) bool {
	labels := node.GetLabels()
	return labels[labelProvider] == provider && labels[key.LabelGSCluster] == cluster
}
