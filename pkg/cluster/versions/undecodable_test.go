package versions_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/undecodable"
)

// TestAReleaseThatCannotBeDecodedGivesNoVersions: a new cluster waits, and an existing one keeps the versions in force.
func TestAReleaseThatCannotBeDecodedGivesNoVersions(t *testing.T) {
	release := &releasev1alpha1.Release{ObjectMeta: metav1.ObjectMeta{Name: "v1.0.0"}}
	undecodable.Mark(release, "spec.date: 1: bad")
	requested := versions.Requested{Label: "1.0.0", Release: release}
	if p, ok := problem.As(versions.Resolve(requested, versions.InForce{}).Err); !ok || p.Reason != "ReleaseInvalid" {
		t.Errorf("of a new cluster the problem is %v", p)
	}
	inForce := versions.Catalog
	v := versions.Resolve(requested, versions.InForce{Accepted: &inForce})
	if p, ok := problem.As(v.Refused); v.Err != nil || !ok || p.Reason != "ReleaseInvalid" || v.Versions != inForce {
		t.Errorf("a living cluster gets %v, because %v and %v", v.Versions, v.Err, v.Refused)
	}
}
