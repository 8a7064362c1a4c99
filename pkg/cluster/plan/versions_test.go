package plan

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
)

// TestWhichVersionsNodesAreCreatedWith: a request that is not accepted leaves the versions in use, as the masters tell them.
func TestWhichVersionsNodesAreCreatedWith(t *testing.T) {
	const used, next, far = "1.34.9", "1.35.5", "1.37.0"
	wish := func(kubernetes string) func(*Observed) {
		return func(o *Observed) { o.Config.Spec.Versions = &v1alpha1.Versions{Kubernetes: kubernetes} }
	}
	for name, test := range map[string]struct {
		change                func(*Observed)
		want                  string
		refused, waits, fails bool
	}{
		"nothing is changed":         {func(*Observed) {}, used, false, false, false},
		"the next minor version":     {wish(next), next, false, false, false},
		"it skips minor versions":    {wish(far), used, true, false, false},
		"it is not a version at all": {wish("latest"), used, true, false, false},
		"the Release does not exist": {func(o *Observed) { o.Config.Labels = map[string]string{key.LabelReleaseVersion: "9.9.9"} }, used, true, false, false},
		"the Release does not exist, and no master tells what it runs": {func(o *Observed) {
			o.Config.Labels = map[string]string{key.LabelReleaseVersion: "9.9.9"}
			o.Deployments, o.Pods, o.Config.Status.Versions = nil, nil, nil
		}, "", false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := settled(t, fixture.MakeCluster("ab1cd").Masters(3).With(func(c *v1alpha1.KVMConfigSpec) {
				c.Versions = &v1alpha1.Versions{Kubernetes: used}
			}))
			o.Config.Status.Versions = &planner.Plan(o, now).Versions
			test.change(&o)
			s := planner.Plan(o, now)
			if s.Versions.Kubernetes != test.want || (s.VersionsRefused != nil) != test.refused || (s.VersionsWait != "") != test.waits || (s.VersionsErr != nil) != test.fails {
				t.Errorf("Kubernetes %q, refused: %v, waits: %q, failed: %v", s.Versions.Kubernetes, s.VersionsRefused, s.VersionsWait, s.VersionsErr)
			}
		})
	}
}

// TestWhatMastersTell: each machine that may run counts: the Deployments of masters, also of those that leave, and each
// pod that has not ended, because the oldest decides which version may follow.
func TestWhatMastersTell(t *testing.T) {
	o := settled(t, fixture.MakeCluster("ab1cd").Masters(2).Workers(1))
	delete(o.Deployments, "master-m1aaa")
	retired := *o.Deployments["master-m0aaa"].DeepCopy()
	retired.Labels[key.LabelNode] = "m9aaa"
	o.Retired = append(o.Retired, retired)
	failed := *o.pod(t, "m0aaa").DeepCopy()
	failed.Labels = map[string]string{key.LabelApp: key.RoleMaster, key.LabelNode: "ended"}
	failed.Status.Phase = corev1.PodFailed
	o.fall(t, "m0aaa")
	o.Pods = append(o.Pods, failed)
	var told []string
	for _, m := range mastersTold(planner.Plan(o, now), o) {
		if m.Versions.Kubernetes == "" {
			t.Errorf("%s tells nothing", m.Name)
		}
		ready := map[bool]string{true: "", false: " is not Ready"}
		told = append(told, m.Name+ready[m.Ready])
	}
	if want := []string{"m0aaa is not Ready", "m9aaa", "m0aaa", "m1aaa"}; !slices.Equal(told, want) {
		t.Errorf("told by %s, want %s", strings.Join(told, ", "), strings.Join(want, ", "))
	}
}

// TestCalicoOfMasters: while the requested versions are not accepted, the version of calico is that of the masters with
// the versions in use, because another one would replace them.
func TestCalicoOfMasters(t *testing.T) {
	calico := key.AnnotationComponentVersion + versions.ComponentCalico
	for name, test := range map[string]struct {
		told  [2]string
		other bool
		want  string
	}{
		"no master tells one":                    {[2]string{"", ""}, false, ""},
		"both tell the same":                     {[2]string{"3.1", "3.1"}, false, "3.1"},
		"only the first tells one":               {[2]string{"3.1", ""}, true, "3.1"},
		"the first has other versions":           {[2]string{"3.1", "3.2"}, true, "3.2"},
		"the last with the versions in use says": {[2]string{"3.1", "3.2"}, false, "3.2"},
	} {
		t.Run(name, func(t *testing.T) {
			o := settled(t, fixture.MakeCluster("ab1cd").Masters(2))
			for i, id := range []string{"m0aaa", "m1aaa"} {
				annotations := o.Deployments["master-"+id].Spec.Template.Annotations
				annotations[calico] = test.told[i]
			}
			s := planner.Plan(o, now)
			if test.other {
				at := 0
				if test.told[1] == "" {
					at = 1
				}
				s.Masters()[at].Deployment.Spec.Template.Annotations[key.AnnotationComponentVersion+versions.ComponentEtcd] = "3.0.0"
			}
			if got := calicoTold(s); got != test.want {
				t.Errorf("it is %q, want %q", got, test.want)
			}
		})
	}
}
