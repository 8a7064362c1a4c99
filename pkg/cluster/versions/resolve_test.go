package versions_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// without is a Release that lacks a component.
func without(component string) *releasev1alpha1.Release {
	release := fixture.MakeRelease("20.0.0", "1.35.4")
	var kept []releasev1alpha1.Component
	for _, c := range release.Spec.Components {
		if c.Name != component {
			kept = append(kept, c)
		}
	}
	release.Spec.Components = kept
	return release
}

func withEtcd(version string) *releasev1alpha1.Release {
	release := without("etcd")
	release.Spec.Components = append(release.Spec.Components, releasev1alpha1.Component{Name: "etcd", Version: version})
	return release
}

func TestVersionsInForce(t *testing.T) {
	for name, test := range map[string]struct {
		label   string
		release *releasev1alpha1.Release
		spec    *v1alpha1.Versions
		want    v1alpha1.Versions
	}{
		"those of the Release that the label names": {
			label: "20.0.0", release: fixture.MakeRelease("20.0.0", "1.34.2"),
			want: v1alpha1.Versions{Kubernetes: "1.34.2", Etcd: "3.6.5", ContainerLinux: "4459.2.1"},
		},
		"the Release goes before the spec": {
			label: "20.0.0", release: fixture.MakeRelease("20.0.0", "1.34.2"), spec: &v1alpha1.Versions{Kubernetes: "1.36.0", Etcd: "3.7.0"},
			want: v1alpha1.Versions{Kubernetes: "1.34.2", Etcd: "3.6.5", ContainerLinux: "4459.2.1"},
		},
		"those of the spec": {
			spec: &v1alpha1.Versions{Kubernetes: "1.36.0", Etcd: "3.7.1", ContainerLinux: "4500.0.0"},
			want: v1alpha1.Versions{Kubernetes: "1.36.0", Etcd: "3.7.1", ContainerLinux: "4500.0.0"},
		},
		"what the spec leaves out is the catalogue's": {
			spec: &v1alpha1.Versions{Kubernetes: "1.34.9"},
			want: v1alpha1.Versions{Kubernetes: "1.34.9", Etcd: versions.Catalog.Etcd, ContainerLinux: versions.Catalog.ContainerLinux},
		},
		"the catalogue's":               {want: versions.Catalog},
		"a Release that no label names": {release: fixture.MakeRelease("20.0.0", "1.34.2"), want: versions.Catalog},
	} {
		t.Run(name, func(t *testing.T) {
			got := versions.Resolve(versions.Requested{Label: test.label, Release: test.release, Spec: test.spec}, versions.InForce{})
			if diff := cmp.Diff(versions.Verdict{Versions: test.want}, got); diff != "" {
				t.Errorf("another verdict (-want +got):\n%s", diff)
			}
		})
	}
}

// TestVersionsThatCannotRun: the message names the object that has to be changed, and what is supported. An existing
// cluster keeps the versions in force, so that its nodes can still be created.
func TestVersionsThatCannotRun(t *testing.T) {
	for name, test := range map[string]struct {
		label   string
		release *releasev1alpha1.Release
		spec    *v1alpha1.Versions
		want    problem.Problem
	}{
		"the Release does not exist": {
			label: "20.0.0",
			want: problem.Problem{Reason: "ReleaseNotFound", Message: "Release v20.0.0 does not exist; create it, " +
				"or remove the label release.giantswarm.io/version and set spec.versions"},
		},
		"the Release has no Kubernetes": {
			label: "20.0.0", release: without("kubernetes"),
			want: problem.Problem{Reason: "ComponentMissing", Message: `Release v20.0.0 has no component "kubernetes"`},
		},
		"the Release has no etcd": {
			label: "20.0.0", release: without("etcd"),
			want: problem.Problem{Reason: "ComponentMissing", Message: `Release v20.0.0 has no component "etcd"`},
		},
		"the Release has no guest image": {
			label: "20.0.0", release: without("containerlinux"),
			want: problem.Problem{Reason: "ComponentMissing", Message: `Release v20.0.0 has no component "containerlinux"`},
		},
		"the original's Kubernetes": {
			label: "14.1.0", release: fixture.MakeRelease("14.1.0", "1.19.9"),
			want: problem.Problem{Reason: "VersionUnsupported", Message: "Release v14.1.0 names kubernetes 1.19.9; supported are 1.34 up to, not including, 1.37"},
		},
		"a Kubernetes that is too new": {
			spec: &v1alpha1.Versions{Kubernetes: "1.37.0"},
			want: problem.Problem{Reason: "VersionUnsupported", Message: "spec.versions names kubernetes 1.37.0; supported are 1.34 up to, not including, 1.37"},
		},
		"another major version": {
			spec: &v1alpha1.Versions{Kubernetes: "2.35.0"},
			want: problem.Problem{Reason: "VersionUnsupported", Message: "spec.versions names kubernetes 2.35.0; supported are 1.34 up to, not including, 1.37"},
		},
		"an etcd that is too old": {
			label: "20.0.0", release: withEtcd("3.5.21"),
			want: problem.Problem{Reason: "VersionUnsupported", Message: "Release v20.0.0 names etcd 3.5.21; supported are 3.6 up to, not including, 3.8"},
		},
		"a version with a v": {
			spec: &v1alpha1.Versions{Kubernetes: "v1.35.4"},
			want: problem.Problem{Reason: "VersionMalformed", Message: `spec.versions names kubernetes "v1.35.4", which is not a version like 1.34.0`},
		},
		"a version of two numbers": {
			spec: &v1alpha1.Versions{Etcd: "3.6"},
			want: problem.Problem{Reason: "VersionMalformed", Message: `spec.versions names etcd "3.6", which is not a version like 3.6.0`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			requested := versions.Requested{Label: test.label, Release: test.release, Spec: test.spec}
			inForce := v1alpha1.Versions{Kubernetes: "1.35.4", Etcd: "3.6.5", ContainerLinux: "4459.2.1"}
			fresh, living := versions.Resolve(requested, versions.InForce{}), versions.Resolve(requested, versions.InForce{Accepted: &inForce})
			for of, err := range map[string]error{"new": fresh.Err, "living": living.Refused} {
				problem, ok := problem.As(err)
				if !ok {
					t.Fatalf("a %s cluster: err = %v, want a problem", of, err)
				}
				if diff := cmp.Diff(test.want, *problem); diff != "" {
					t.Errorf("a %s cluster: another problem (-want +got):\n%s", of, diff)
				}
			}
			if diff := cmp.Diff([]v1alpha1.Versions{{}, inForce}, []v1alpha1.Versions{fresh.Versions, living.Versions}); diff != "" || living.Err != nil {
				t.Errorf("a running cluster does not keep its versions: %v, (-want +got):\n%s", living.Err, diff)
			}
		})
	}
}

func TestReleaseNameIsTheLabelWithOneV(t *testing.T) {
	got := []string{versions.ReleaseName("20.0.0"), versions.ReleaseName("v20.0.0")}
	if diff := cmp.Diff([]string{"v20.0.0", "v20.0.0"}, got); diff != "" {
		t.Errorf("another name (-want +got):\n%s", diff)
	}
}

// TestCatalogueIsSupported: a catalog that Resolve rejects would stop every cluster that sets no versions.
func TestCatalogueIsSupported(t *testing.T) {
	if got := versions.Resolve(versions.Requested{}, versions.InForce{}); got.Err != nil {
		t.Error(got.Err)
	}
}

func TestComponentsByName(t *testing.T) {
	want := map[string]string{"kubernetes": "1.35.4", "etcd": "3.6.5", "calico": "3.30.0", "containerlinux": "4459.2.1"}
	got := []map[string]string{versions.Components(fixture.MakeRelease("20.0.0", "1.35.4")), versions.Components(nil)}
	if diff := cmp.Diff([]map[string]string{want, {}}, got); diff != "" {
		t.Errorf("other components (-want +got):\n%s", diff)
	}
}
