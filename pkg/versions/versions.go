// Package versions decides which versions of which components a cluster gets.
package versions

import (
	"strconv"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/problem"
)

// Names of the components of a Release that matter here.
const (
	ComponentKubernetes     = "kubernetes"
	ComponentEtcd           = "etcd"
	ComponentCalico         = "calico"
	ComponentContainerLinux = "containerlinux"
)

// Catalogue is what a cluster gets that asks for nothing.
var Catalogue = v1alpha1.Versions{Kubernetes: "1.35.4", Etcd: "3.6.5", ContainerLinux: "4459.2.1"}

// supported are the first and the first no longer supported minor version by component.
var supported = map[string]struct{ from, before [2]int }{
	ComponentKubernetes: {from: [2]int{1, 34}, before: [2]int{1, 37}},
	ComponentEtcd:       {from: [2]int{3, 6}, before: [2]int{3, 8}},
}

// ReleaseName is the name of the Release that a KVMConfig with the given value of label release.giantswarm.io/version
// chooses.
func ReleaseName(label string) string { return "v" + strings.TrimPrefix(label, "v") }

// Resolve decides the versions: those of the Release when the label names one, else those of the spec, else the
// catalogue's. release is nil when it does not exist. A version that is missing or not supported is a problem.Problem.
func Resolve(label string, release *releasev1alpha1.Release, spec *v1alpha1.Versions) (v1alpha1.Versions, error) {
	resolved, source := Catalogue, "the built-in catalogue"
	switch {
	case label != "" && release == nil:
		return v1alpha1.Versions{}, problem.Newf("ReleaseNotFound",
			"Release %s does not exist; create it, or remove the label release.giantswarm.io/version and set spec.versions", ReleaseName(label))
	case label != "":
		source = "Release " + release.Name
		components := Components(release)
		for _, name := range []string{ComponentKubernetes, ComponentEtcd, ComponentContainerLinux} {
			if components[name] == "" {
				return v1alpha1.Versions{}, problem.Newf("ComponentMissing", "%s has no component %q", source, name)
			}
		}
		resolved = v1alpha1.Versions{
			Kubernetes: components[ComponentKubernetes], Etcd: components[ComponentEtcd], ContainerLinux: components[ComponentContainerLinux],
		}
	case spec != nil:
		source = "spec.versions"
		override(&resolved.Kubernetes, spec.Kubernetes)
		override(&resolved.Etcd, spec.Etcd)
		override(&resolved.ContainerLinux, spec.ContainerLinux)
	}
	if err := check(ComponentKubernetes, resolved.Kubernetes, source); err != nil {
		return v1alpha1.Versions{}, err
	}
	return resolved, check(ComponentEtcd, resolved.Etcd, source)
}

// Components are the versions of a Release's components by name.
func Components(release *releasev1alpha1.Release) map[string]string {
	components := map[string]string{}
	if release == nil {
		return components
	}
	for _, c := range release.Spec.Components {
		components[c.Name] = c.Version
	}
	return components
}

func override(target *string, value string) {
	if value != "" {
		*target = value
	}
}

func check(component, version, source string) error {
	bounds := supported[component]
	minor, ok := minorOf(version)
	if !ok {
		return problem.Newf("VersionMalformed", "%s names %s %q, which is not a version like %d.%d.0", source, component, version, bounds.from[0], bounds.from[1])
	}
	if less(minor, bounds.from) || !less(minor, bounds.before) {
		return problem.Newf("VersionUnsupported", "%s names %s %s; supported are %d.%d up to, not including, %d.%d",
			source, component, version, bounds.from[0], bounds.from[1], bounds.before[0], bounds.before[1])
	}
	return nil
}

func minorOf(version string) ([2]int, bool) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) != 3 {
		return [2]int{}, false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return [2]int{major, minor}, err1 == nil && err2 == nil
}

func less(a, b [2]int) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }
