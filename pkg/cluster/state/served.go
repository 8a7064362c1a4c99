package state

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// ServedKubernetes returns the version of Kubernetes that all masters serve: the wanted one or, while a master still
// has an older one, the oldest. Nothing in the workload cluster may be newer than its API servers
// (https://kubernetes.io/releases/version-skew-policy/#kube-proxy). It is empty if it is not known: the wanted version
// cannot be resolved, and no master has joined.
func (s *Cluster) ServedKubernetes() string {
	served := ""
	if s.VersionsErr == nil {
		served = s.Versions.Kubernetes
	}
	for _, n := range s.Masters() {
		for _, pod := range n.Pods {
			node := s.Workload.Node(pod.Name)
			if node == nil {
				continue
			}
			has := strings.TrimPrefix(node.Status.NodeInfo.KubeletVersion, "v")
			if older(has, served) {
				served = has
			}
		}
	}
	return served
}

// older returns whether a release is older than another one; every release is older than none.
func older(release, than string) bool {
	parsed, err := version.ParseSemantic(release)
	if err != nil || parsed.PreRelease() != "" || parsed.BuildMetadata() != "" {
		return false // no image has such a name
	}
	other, err := version.ParseSemantic(than)
	return err != nil || parsed.LessThan(other)
}
