package cluster

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// Conditions of the original API. Their status is always "True"; each one replaces its predecessor.
const (
	legacyCreating = "Creating"
	legacyCreated  = "Created"
	legacyUpdating = "Updating"
	legacyUpdated  = "Updated"
	legacyDeleting = "Deleting"
	legacyDeleted  = "Deleted"

	// legacyVersions is how many versions are kept.
	legacyVersions = 5
)

// legacyStatus fills status.cluster by the rules of the original's status handler.
func legacyStatus(s *state.Cluster, now time.Time) *v1alpha1.LegacyClusterStatus {
	st := &v1alpha1.LegacyClusterStatus{}
	if s.Config.Status.Cluster != nil {
		st = s.Config.Status.Cluster.DeepCopy()
	}
	if s.Config.DeletionTimestamp != nil {
		setLegacy(st, legacyDeleting, legacyDeleted, now)
		return st
	}
	fresh := len(st.Conditions)+len(st.Nodes)+len(st.Versions) == 0
	st.Nodes = legacyNodes(st.Nodes, s, now)
	desired := s.Version()
	complete := len(s.Nodes) > 0 && len(st.Nodes) == len(s.Nodes) && allOfVersion(st.Nodes, desired)
	switch {
	case fresh:
		setLegacy(st, legacyCreating, "", now)
	case hasLegacy(st, legacyCreating) && complete:
		setLegacy(st, legacyCreated, legacyCreating, now)
	case hasLegacy(st, legacyCreated) && !hasLegacy(st, legacyUpdating) && versionChanged(st, desired):
		setLegacy(st, legacyUpdating, legacyUpdated, now)
	case hasLegacy(st, legacyUpdating) && complete:
		setLegacy(st, legacyUpdated, legacyUpdating, now)
	}
	settled := hasLegacy(st, legacyCreated) || hasLegacy(st, legacyUpdated)
	if settled && complete && desired != "" && latest(st) != desired {
		// A version to which the cluster returns becomes the latest again, because otherwise the update to it would
		// never end.
		st.Versions = slices.DeleteFunc(st.Versions, func(v v1alpha1.LegacyVersion) bool { return v.Semver == desired })
		st.Versions = append(st.Versions, v1alpha1.LegacyVersion{Semver: desired, LastTransitionTime: metav1.NewTime(now)})
		st.Versions = st.Versions[max(0, len(st.Versions)-legacyVersions):]
	}
	return st
}

// legacyNodes are the Ready node pods, whose names are those of the workload cluster's Nodes.
func legacyNodes(before []v1alpha1.LegacyNode, s *state.Cluster, now time.Time) []v1alpha1.LegacyNode {
	var nodes []v1alpha1.LegacyNode
	for _, n := range s.Nodes {
		pod := n.Pod()
		if !n.Ready || pod == nil {
			continue
		}
		node := v1alpha1.LegacyNode{
			Name: pod.Name, Version: pod.Labels[key.LabelVersion], Labels: map[string]string{"role": n.Role},
			LastTransitionTime: metav1.NewTime(now),
		}
		if i := slices.IndexFunc(before, func(b v1alpha1.LegacyNode) bool {
			return b.Name == node.Name && b.Version == node.Version && maps.Equal(b.Labels, node.Labels)
		}); i >= 0 {
			node.LastTransitionTime = before[i].LastTransitionTime
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// setLegacy adds a condition at the front and removes its predecessor; a condition that exists keeps its time.
func setLegacy(st *v1alpha1.LegacyClusterStatus, conditionType, predecessor string, now time.Time) {
	st.Conditions = slices.DeleteFunc(st.Conditions, func(c v1alpha1.LegacyCondition) bool { return c.Type == predecessor })
	if hasLegacy(st, conditionType) {
		return
	}
	c := v1alpha1.LegacyCondition{Type: conditionType, Status: "True", LastTransitionTime: metav1.NewTime(now)}
	st.Conditions = append([]v1alpha1.LegacyCondition{c}, st.Conditions...)
}

func hasLegacy(st *v1alpha1.LegacyClusterStatus, conditionType string) bool {
	return slices.ContainsFunc(st.Conditions, func(c v1alpha1.LegacyCondition) bool { return c.Type == conditionType })
}

func allOfVersion(nodes []v1alpha1.LegacyNode, version string) bool {
	return !slices.ContainsFunc(nodes, func(n v1alpha1.LegacyNode) bool { return n.Version != version })
}

// versionChanged returns whether the requested version differs from the one that was reached last. If none is
// requested, nothing changes.
func versionChanged(st *v1alpha1.LegacyClusterStatus, desired string) bool {
	return desired != "" && latest(st) != "" && latest(st) != desired
}

// latest returns the version that was reached last; versions of the original are in that order too.
func latest(st *v1alpha1.LegacyClusterStatus) string {
	if len(st.Versions) == 0 {
		return ""
	}
	return st.Versions[len(st.Versions)-1].Semver
}
