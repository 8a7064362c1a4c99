// Package versions decides which versions of which components a cluster gets.
package versions

import (
	"strconv"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/undecodable"
)

// Names of the components of a Release that matter here.
const (
	ComponentKubernetes     = "kubernetes"
	ComponentEtcd           = "etcd"
	ComponentCalico         = "calico"
	ComponentContainerLinux = "containerlinux"
)

// Catalog is what a cluster gets by default.
var Catalog = v1alpha1.Versions{Kubernetes: "1.35.4", Etcd: "3.6.5", ContainerLinux: "4459.2.1"}

// supported are the first supported and the first no longer supported minor version by component.
var supported = map[string]struct{ from, before [2]int }{
	ComponentKubernetes: {from: [2]int{1, 34}, before: [2]int{1, 37}},
	ComponentEtcd:       {from: [2]int{3, 6}, before: [2]int{3, 8}},
}

// ReleaseName returns the name of the Release that a KVMConfig with the given value of label
// release.giantswarm.io/version selects.
func ReleaseName(label string) string { return "v" + strings.TrimPrefix(label, "v") }

// Requested is where versions are requested.
type Requested struct {
	// Label is the value of label release.giantswarm.io/version, and Release the one that it names; nil if it does not
	// exist.
	Label   string
	Release *releasev1alpha1.Release
	// Spec is spec.versions.
	Spec *v1alpha1.Versions
}

// Resolve decides the versions: those of the Release if the label names one, otherwise those of the spec. A version
// that neither names does not change; a new cluster gets the catalog's. So removing a line from a manifest, or
// an operator with another catalog, changes no version of an existing cluster.
//
// A version that is missing, unsupported, or forbidden by the rules of a transition is a problem.Problem: a new cluster
// then has no versions, and an existing one keeps those in force.
func Resolve(requested Requested, inForce InForce) Verdict {
	wanted, source, err := requested.versions(inForce.last())
	if err == nil {
		err = checkAll(wanted, source)
	}
	if err == nil {
		return inForce.judge(wanted, source)
	}
	last := inForce.last()
	if checkAll(last, "status.versions") != nil {
		return Verdict{Err: err}
	}
	return Verdict{Versions: last, Refused: err}
}

// versions returns the requested versions, and where they were requested.
func (w Requested) versions(last v1alpha1.Versions) (v1alpha1.Versions, string, error) {
	wanted, source := Catalog, "the built-in catalogue"
	if last != (v1alpha1.Versions{}) {
		source = "status.versions"
	}
	override(&wanted.Kubernetes, last.Kubernetes)
	override(&wanted.Etcd, last.Etcd)
	override(&wanted.ContainerLinux, last.ContainerLinux)
	switch {
	case w.Label != "" && w.Release == nil:
		return v1alpha1.Versions{}, "", problem.Newf("ReleaseNotFound",
			"Release %s does not exist; create it, or remove the label release.giantswarm.io/version and set spec.versions", ReleaseName(w.Label))
	case w.Label != "" && undecodable.Why(w.Release) != "":
		// It looks as if it had no components.
		return v1alpha1.Versions{}, "", problem.Newf("ReleaseInvalid", "Release %s cannot be read: %s; correct it: kubectl edit releases.release.giantswarm.io %s",
			w.Release.Name, undecodable.Why(w.Release), w.Release.Name)
	case w.Label != "":
		source = "Release " + w.Release.Name
		components := Components(w.Release)
		for _, name := range []string{ComponentKubernetes, ComponentEtcd, ComponentContainerLinux} {
			if components[name] == "" {
				return v1alpha1.Versions{}, "", problem.Newf("ComponentMissing", "%s has no component %q", source, name)
			}
		}
		wanted = v1alpha1.Versions{
			Kubernetes: components[ComponentKubernetes], Etcd: components[ComponentEtcd], ContainerLinux: components[ComponentContainerLinux],
		}
	case w.Spec != nil:
		source = "spec.versions"
		override(&wanted.Kubernetes, w.Spec.Kubernetes)
		override(&wanted.Etcd, w.Spec.Etcd)
		override(&wanted.ContainerLinux, w.Spec.ContainerLinux)
	}
	return wanted, source, nil
}

func checkAll(v v1alpha1.Versions, source string) error {
	if err := check(ComponentKubernetes, v.Kubernetes, source); err != nil {
		return err
	}
	return check(ComponentEtcd, v.Etcd, source)
}

// Components returns the versions of a Release's components by name.
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
