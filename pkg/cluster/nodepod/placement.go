package nodepod

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// Place makes a pod run on hosts for a role, according to the settings for all pods of clusters.
func Place(pod *corev1.PodSpec, role string, settings state.PodSettings) {
	pod.NodeSelector = map[string]string{}
	maps.Copy(pod.NodeSelector, settings.NodeSelector)
	pod.NodeSelector[key.LabelManagementNodesRole] = role
	pod.PriorityClassName, pod.Tolerations = settings.PriorityClass, settings.Tolerations
	for _, name := range settings.PullSecrets {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
}

// spread keeps the numbers of machines of a role per zone within one of each other.
func spread(s *state.Cluster, role string) []corev1.TopologySpreadConstraint {
	unsatisfiable := corev1.ScheduleAnyway
	switch s.Settings.Pods.ZoneSpread {
	case state.ZoneSpreadRequired:
		unsatisfiable = corev1.DoNotSchedule
	case state.ZoneSpreadPreferred:
	default:
		return nil
	}
	return []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: unsatisfiable,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key.LabelApp: role, key.LabelCluster: s.ID()}},
	}}
}
