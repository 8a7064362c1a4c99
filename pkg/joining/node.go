package joining

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/text"
)

// Labels of Nodes that only the operator can set, for NodeRestriction does not let kubelets name their own role.
const (
	labelRolePrefix = "node-role.kubernetes.io/"
	labelRole       = "kubernetes.io/role"
	labelProvider   = "giantswarm.io/provider"
	provider        = "kvm"
)

// Labels are those that a Node gets through the API: its role as kubectl and selectors know it, and what the original's
// status and its readers look for. cluster is the cluster's id, version the operator version that the node's pod carries, empty
// for none. Further labels are those that the kubelet gives itself when it registers.
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

// Missing are the wanted labels that the Node does not have, or has with another value; nil when there is none.
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

// Ready says whether a Node reports that it is Ready; one that does not exist does not.
func Ready(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Reasons of the readiness gate where the Node gives none.
const (
	ReasonNodeDeleted = "NodeDeleted"
	ReasonNodeMissing = "NodeMissing"
	ReasonNodeSilent  = "NodeSilent"
)

// NodeReady is the readiness gate of the pod that holds the given Node; nil when there is no Node. Times are left out: they
// are the writer's.
func NodeReady(node *corev1.Node) corev1.PodCondition {
	if node == nil {
		return gate(corev1.ConditionFalse, ReasonNodeMissing, "no node in workload cluster")
	}
	if node.DeletionTimestamp != nil {
		return gate(corev1.ConditionFalse, ReasonNodeDeleted, "node deleted in workload cluster")
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return gate(known(c.Status), text.Beginning(c.Reason, longestReason), Steady(c.Message))
		}
	}
	return gate(corev1.ConditionUnknown, ReasonNodeSilent, "the kubelet has not reported yet")
}

func gate(status corev1.ConditionStatus, reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: key.ConditionNodeReady, Status: status, Reason: reason, Message: message}
}

// known makes every status that is neither True nor False Unknown: nothing else may stand in a pod.
func known(status corev1.ConditionStatus) corev1.ConditionStatus {
	if status == corev1.ConditionTrue || status == corev1.ConditionFalse {
		return status
	}
	return corev1.ConditionUnknown
}

// Changed says whether the condition tells something that the pod does not carry yet.
func Changed(pod *corev1.Pod, condition corev1.PodCondition) bool {
	return !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == condition.Type && c.Status == condition.Status && c.Reason == condition.Reason && c.Message == condition.Message
	})
}

// Ours says whether the operator has labelled the Node, as it does with each that belongs to a node pod of the cluster.
func Ours(node metav1.Object, cluster string) bool {
	labels := node.GetLabels()
	return labels[labelProvider] == provider && labels[key.LabelGSCluster] == cluster
}
