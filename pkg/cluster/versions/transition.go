package versions

import (
	"slices"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// InForce is what a cluster runs, as far as it is known. It is empty for a new cluster.
type InForce struct {
	// Accepted are the versions that were resolved last: status.versions.
	Accepted *v1alpha1.Versions
	// Masters are the masters' machines: one entry for each Deployment and each pod.
	Masters []Master
	// Allowed names the changes that the user permits although the rules forbid them: the value of the annotation
	// kvm-operator.giantswarm.io/allow-version.
	Allowed string
}

// Master is what one master's machine was ordered to run.
type Master struct {
	// Name names it for the user.
	Name string
	// Versions are those in its pod template or pod; empty if it has none.
	Versions v1alpha1.Versions
	// Ready says that it is Ready with these versions.
	Ready bool
}

// Verdict says with which versions the nodes of a cluster are created.
type Verdict struct {
	// Versions are valid if Err is nil.
	Versions v1alpha1.Versions
	// Err is why there are none: nothing can be created.
	Err error
	// Refused is why Versions are those in force and not the requested ones.
	Refused error
	// Waits says what has to happen before the requested versions are accepted; until then Versions are those in force.
	Waits string
}

// last returns the versions in force: those accepted last. If a cluster's status is lost, they are what its masters
// were ordered to run.
func (f InForce) last() v1alpha1.Versions {
	if f.Accepted != nil {
		return *f.Accepted
	}
	var last v1alpha1.Versions
	for _, m := range f.Masters {
		last.Kubernetes, last.Etcd = newer(last.Kubernetes, m.Versions.Kubernetes), newer(last.Etcd, m.Versions.Etcd)
		if last.ContainerLinux == "" {
			last.ContainerLinux = m.Versions.ContainerLinux
		}
	}
	return last
}

func newer(a, b string) string {
	before, okA := minorOf(a)
	after, okB := minorOf(b)
	if !okB || okA && !less(before, after) {
		return a
	}
	return b
}

// judge applies the rules of a transition to the requested versions. If the rules forbid one of them, no version
// changes, because the user never requested the combination that would result.
func (f InForce) judge(wanted v1alpha1.Versions, source string) Verdict {
	last := f.last()
	stays := Verdict{Versions: last}
	for _, c := range []component{
		{ComponentKubernetes, wanted.Kubernetes, last.Kubernetes, func(v v1alpha1.Versions) string { return v.Kubernetes }},
		{ComponentEtcd, wanted.Etcd, last.Etcd, func(v v1alpha1.Versions) string { return v.Etcd }},
	} {
		waits, refused := c.transition(f, source)
		if refused != nil {
			return Verdict{Versions: last, Refused: refused}
		}
		if stays.Waits == "" {
			stays.Waits = waits
		}
	}
	if stays.Waits != "" {
		return stays
	}
	return Verdict{Versions: wanted}
}

// component is one component of a request for versions.
type component struct {
	name, wanted, last string
	of                 func(v1alpha1.Versions) string
}

// transition returns why a component may not change from the version in force to the requested one, or what has to
// happen before. Within a minor version every change is allowed, in both directions. Across minor versions, Kubernetes
// (https://kubernetes.io/releases/version-skew-policy/) and etcd (https://etcd.io/docs/v3.6/upgrades/upgrade_3_6/) go
// forward by one at a time, and only once every member of the control plane runs the version before.
func (c component) transition(f InForce, source string) (waits string, refused error) {
	from, known := minorOf(c.last)
	to, _ := minorOf(c.wanted)
	if !known || c.wanted == c.last || from == to || f.allows(c.name, c.wanted) {
		return "", nil
	}
	// The accepted version counts only as long as no master says which version it was ordered to run: a change that no
	// master has seen may be reverted.
	lowest, highest, told := c.extent(f)
	if !told {
		lowest, highest = from, from
	}
	if less(to, highest) {
		return "", c.refuse(source, "smaller minor versions are not supported, because data that a newer version wrote may be unreadable")
	}
	if less([2]int{lowest[0], lowest[1] + 1}, to) {
		return "", c.refuse(source, "minor versions may not be skipped, and masters run %d.%d", lowest[0], lowest[1])
	}
	if less(lowest, to) {
		return f.unready(c), nil
	}
	return "", nil
}

func (c component) refuse(source, format string, args ...any) error {
	return problem.Newf("VersionChangeRefused", "%s requests %s %s, but %s is in use: "+format+
		"; request another version, or permit this one with the annotation %s: %s=%s",
		slices.Concat([]any{source, c.name, c.wanted, c.last}, args, []any{key.AnnotationAllowVersion, c.name, c.wanted})...)
}

// extent returns the lowest and the highest minor version that masters were ordered to run, if any of them says so.
func (c component) extent(f InForce) (lowest, highest [2]int, told bool) {
	for _, m := range f.Masters {
		minor, ok := minorOf(c.of(m.Versions))
		if !ok {
			continue
		}
		if !told || less(minor, lowest) {
			lowest = minor
		}
		if !told || less(highest, minor) {
			highest = minor
		}
		told = true
	}
	return lowest, highest, told
}

// unready returns a message if a master is not Ready yet: the next minor version waits for it, because the version
// that it was ordered to run may never have run.
func (f InForce) unready(c component) string {
	var names []string
	for _, m := range f.Masters {
		if !m.Ready && !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return c.name + " " + c.wanted + " waits until all masters are Ready with " + c.last + ": " + strings.Join(names, ", ") +
		"; to continue without waiting, set the annotation " + key.AnnotationAllowVersion + ": " + c.name + "=" + c.wanted
}

// allows reports whether the user permits a change: the annotation names the version, so that it permits no later
// change.
func (f InForce) allows(component, version string) bool {
	for _, entry := range strings.Split(f.Allowed, ",") {
		if strings.TrimSpace(entry) == component+"="+version {
			return true
		}
	}
	return false
}
