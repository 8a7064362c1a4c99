package plan

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
)

// resolveVersions decides which versions nodes are created with. While the requested versions are not accepted,
// components that only a Release names keep the versions of the masters, because the masters would be rolled out
// otherwise.
func resolveVersions(s *state.Cluster, o Observed) {
	requested := versions.Requested{Label: s.ReleaseVersion(), Release: o.Release, Spec: s.Config.Spec.Versions}
	v := versions.Resolve(requested, versions.InForce{
		Accepted: s.Config.Status.Versions, Masters: mastersTold(s, o), Allowed: s.Config.Annotations[key.AnnotationAllowVersion],
	})
	s.Components = versions.Components(o.Release)
	s.Versions, s.VersionsErr, s.VersionsRefused, s.VersionsWait = v.Versions, v.Err, v.Refused, v.Waits
	if v.Err != nil || v.Refused == nil && v.Waits == "" {
		return
	}
	s.Components = maps.Clone(s.Components)
	delete(s.Components, versions.ComponentCalico)
	if told := calicoTold(s); told != "" {
		s.Components[versions.ComponentCalico] = told
	}
}

// mastersTold returns the versions of each Deployment and each pod of a master, including those that are being removed.
func mastersTold(s *state.Cluster, o Observed) []versions.Master {
	var told []versions.Master
	for _, n := range s.Masters() {
		if n.Deployment == nil {
			continue
		}
		ready, _ := state.PodReadiness(n)
		told = append(told, versions.Master{Name: n.ID, Versions: templateVersions(n.Deployment), Ready: ready})
	}
	for i := range o.Retired {
		d := &o.Retired[i]
		told = append(told, versions.Master{Name: d.Labels[key.LabelNode], Versions: templateVersions(d), Ready: true})
	}
	for _, pod := range o.Pods {
		if pod.Labels[key.LabelApp] == key.RoleMaster && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
			told = append(told, versions.Master{Name: pod.Labels[key.LabelNode], Versions: versionsOf(pod.Annotations), Ready: true})
		}
	}
	return told
}

func templateVersions(d *appsv1.Deployment) v1alpha1.Versions {
	return versionsOf(d.Spec.Template.Annotations)
}

func versionsOf(annotations map[string]string) v1alpha1.Versions {
	of := func(component string) string { return annotations[key.AnnotationComponentVersion+component] }
	return v1alpha1.Versions{
		Kubernetes: of(versions.ComponentKubernetes), Etcd: of(versions.ComponentEtcd), ContainerLinux: of(versions.ComponentContainerLinux),
	}
}

// calicoTold returns the version of calico of the masters, preferably of those with the versions in use.
func calicoTold(s *state.Cluster) string {
	told := ""
	for _, n := range s.Masters() {
		if n.Deployment == nil {
			continue
		}
		if of := n.Deployment.Spec.Template.Annotations[key.AnnotationComponentVersion+versions.ComponentCalico]; told == "" || templateVersions(n.Deployment) == s.Versions {
			told = of
		}
	}
	return told
}
