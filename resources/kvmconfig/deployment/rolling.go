package deployment

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
)

// rolls says that a node is replaced because it was outdated and its turn has come, and what changed. A master that is
// halted for a restore is not rolled out.
func rolls(s *state.Cluster, object client.Object) (message string, keysAndValues []any) {
	for _, n := range s.Nodes {
		if n.Halted() || !n.Outdated() || key.DeploymentName(n.Role, n.ID) != object.GetName() {
			continue
		}
		now := object.(*appsv1.Deployment).Spec.Template
		if now.Annotations[key.AnnotationNodeHash] != n.Hash || object.GetAnnotations()[key.AnnotationEtcdHalted] != "" {
			continue
		}
		return "rolling node", []any{"role", n.Role, "node", n.ID, "reason", changes(n.Deployment.Spec.Template, now)}
	}
	return "", nil
}

// changes describes how the specification of a node differs from the one that it had: by versions and images, which are
// what people ask about, and in any case by its revision.
func changes(before, now corev1.PodTemplateSpec) string {
	var all []string
	differ := func(what, before, now string) {
		if before != now {
			all = append(all, fmt.Sprintf("%s %s becomes %s", what, orNone(before), orNone(now)))
		}
	}
	for _, component := range []string{versions.ComponentKubernetes, versions.ComponentEtcd, versions.ComponentContainerLinux, versions.ComponentCalico} {
		name := key.AnnotationComponentVersion + component
		differ(component, before.Annotations[name], now.Annotations[name])
	}
	differ("version bundle", before.Annotations[key.AnnotationPodVersionBundle], now.Annotations[key.AnnotationPodVersionBundle])
	differ("runner image", image(before), image(now))
	differ("revision", before.Annotations[key.AnnotationNodeHash], now.Annotations[key.AnnotationNodeHash])
	return strings.Join(all, "; ")
}

func orNone(value string) string {
	if value == "" {
		return "none"
	}
	return value
}

func image(template corev1.PodTemplateSpec) string {
	if len(template.Spec.Containers) == 0 {
		return ""
	}
	return template.Spec.Containers[0].Image
}
