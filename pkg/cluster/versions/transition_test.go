package versions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

func of(kubernetes, etcd string) v1alpha1.Versions {
	return v1alpha1.Versions{Kubernetes: kubernetes, Etcd: etcd, ContainerLinux: "4459.2.1"}
}

// masters are Ready masters m0, m1, … that were ordered to run the versions.
func masters(told ...v1alpha1.Versions) []versions.Master {
	var list []versions.Master
	for i, v := range told {
		list = append(list, versions.Master{Name: fmt.Sprintf("m%d", i), Versions: v, Ready: true})
	}
	return list
}

const (
	permit   = "; request another version, or permit this one with the annotation kvm-operator.giantswarm.io/allow-version: "
	noReturn = ": smaller minor versions are not supported, because data that a newer version wrote may be unreadable"
	noJump   = ": minor versions may not be skipped, and masters run "
)

// TestTransitions says for each change of an existing cluster whether it is accepted, rejected or waits, and with which
// versions nodes are created meanwhile.
func TestTransitions(t *testing.T) {
	old, now, next := of("1.34.1", "3.6.1"), of("1.35.4", "3.6.5"), of("1.36.0", "3.7.0")
	now37 := of("1.35.4", "3.7.0")
	notReady := masters(now, now, now)
	notReady[1].Ready, notReady[2].Ready = false, false
	type outcome struct {
		Versions       v1alpha1.Versions
		Refused, Waits string
	}
	for name, test := range map[string]struct {
		spec    *v1alpha1.Versions
		label   string
		release string
		inForce versions.InForce
		want    outcome
	}{
		"nothing is asked for, and what is in force stays":        {inForce: versions.InForce{Accepted: &old, Masters: masters(old)}, want: outcome{Versions: old}},
		"spec.versions is removed after an upgrade":               {inForce: versions.InForce{Accepted: &next, Masters: masters(next)}, want: outcome{Versions: next}},
		"half of spec.versions is removed":                        {spec: &v1alpha1.Versions{Etcd: "3.7.0"}, inForce: versions.InForce{Accepted: &next, Masters: masters(next)}, want: outcome{Versions: next}},
		"the status is lost, and masters say what they run":       {inForce: versions.InForce{Masters: masters(next)}, want: outcome{Versions: next}},
		"the status is lost in the middle of an upgrade":          {inForce: versions.InForce{Masters: masters(now, next)}, want: outcome{Versions: next}},
		"a patch version up":                                      {spec: &v1alpha1.Versions{Kubernetes: "1.35.9"}, inForce: versions.InForce{Accepted: &now, Masters: masters(now)}, want: outcome{Versions: of("1.35.9", "3.6.5")}},
		"a patch version down":                                    {spec: &v1alpha1.Versions{Kubernetes: "1.35.1"}, inForce: versions.InForce{Accepted: &now, Masters: masters(now)}, want: outcome{Versions: of("1.35.1", "3.6.5")}},
		"patch versions need no Ready masters":                    {spec: &v1alpha1.Versions{Kubernetes: "1.35.9"}, inForce: versions.InForce{Accepted: &now, Masters: notReady}, want: outcome{Versions: of("1.35.9", "3.6.5")}},
		"Kubernetes one minor version up":                         {spec: &v1alpha1.Versions{Kubernetes: "1.36.0"}, inForce: versions.InForce{Accepted: &now, Masters: masters(now, now)}, want: outcome{Versions: of("1.36.0", "3.6.5")}},
		"etcd one minor version up":                               {spec: &v1alpha1.Versions{Etcd: "3.7.0"}, inForce: versions.InForce{Accepted: &now, Masters: masters(now)}, want: outcome{Versions: now37}},
		"both one minor version up":                               {spec: &next, inForce: versions.InForce{Accepted: &now, Masters: masters(now)}, want: outcome{Versions: next}},
		"an upgrade continues while masters are replaced":         {spec: &next, inForce: versions.InForce{Accepted: &next, Masters: append(masters(now, next), versions.Master{Name: "m2", Versions: next})}, want: outcome{Versions: next}},
		"reverted before any master was updated":                  {spec: &now, inForce: versions.InForce{Accepted: &next, Masters: masters(now, now)}, want: outcome{Versions: now}},
		"a downgrade that was begun continues":                    {spec: &now, inForce: versions.InForce{Accepted: &now, Masters: masters(now, next)}, want: outcome{Versions: now}},
		"a downgrade that is permitted":                           {spec: &now, inForce: versions.InForce{Accepted: &next, Masters: masters(next), Allowed: "kubernetes=1.35.4, etcd=3.6.5"}, want: outcome{Versions: now}},
		"a jump that is permitted":                                {spec: &v1alpha1.Versions{Kubernetes: "1.36.0"}, inForce: versions.InForce{Accepted: &old, Masters: masters(old), Allowed: "kubernetes=1.36.0"}, want: outcome{Versions: of("1.36.0", "3.6.1")}},
		"an upgrade beside a master that is not Ready, permitted": {spec: &v1alpha1.Versions{Kubernetes: "1.36.0"}, inForce: versions.InForce{Accepted: &now, Masters: notReady, Allowed: "kubernetes=1.36.0"}, want: outcome{Versions: of("1.36.0", "3.6.5")}},
		"another Flatcar, older or newer":                         {spec: &v1alpha1.Versions{ContainerLinux: "4000.0.0"}, inForce: versions.InForce{Accepted: &now, Masters: masters(now)}, want: outcome{Versions: v1alpha1.Versions{Kubernetes: "1.35.4", Etcd: "3.6.5", ContainerLinux: "4000.0.0"}}},
		"masters that do not say what they run": {
			spec: &next, inForce: versions.InForce{Accepted: &now, Masters: masters(v1alpha1.Versions{})}, want: outcome{Versions: next},
		},

		"a downgrade of Kubernetes": {
			spec: &v1alpha1.Versions{Kubernetes: "1.34.1"}, inForce: versions.InForce{Accepted: &now, Masters: masters(now)},
			want: outcome{Versions: now, Refused: "spec.versions requests kubernetes 1.34.1, but 1.35.4 is in use" + noReturn + permit + "kubernetes=1.34.1"},
		},
		"a downgrade of etcd": {
			spec: &v1alpha1.Versions{Etcd: "3.6.5"}, inForce: versions.InForce{Accepted: &now37, Masters: masters(now37)},
			want: outcome{Versions: now37, Refused: "spec.versions requests etcd 3.6.5, but 3.7.0 is in use" + noReturn + permit + "etcd=3.6.5"},
		},
		"reverted when one master was updated": {
			spec: &now, inForce: versions.InForce{Accepted: &next, Masters: masters(now, next, now)},
			want: outcome{Versions: next, Refused: "spec.versions requests kubernetes 1.35.4, but 1.36.0 is in use" + noReturn + permit + "kubernetes=1.35.4"},
		},
		"a downgrade without machines: their data stays": {
			spec: &now, inForce: versions.InForce{Accepted: &next},
			want: outcome{Versions: next, Refused: "spec.versions requests kubernetes 1.35.4, but 1.36.0 is in use" + noReturn + permit + "kubernetes=1.35.4"},
		},
		"a downgrade by another Release": {
			label: "20.0.0", release: "1.34.2", inForce: versions.InForce{Accepted: &now, Masters: masters(now)},
			want: outcome{Versions: now, Refused: "Release v20.0.0 requests kubernetes 1.34.2, but 1.35.4 is in use" + noReturn + permit + "kubernetes=1.34.2"},
		},
		"half of a request is not applied": {
			spec: &v1alpha1.Versions{Kubernetes: "1.36.0", Etcd: "3.6.1"}, inForce: versions.InForce{Accepted: &now37, Masters: masters(now37)},
			want: outcome{Versions: now37, Refused: "spec.versions requests etcd 3.6.1, but 3.7.0 is in use" + noReturn + permit + "etcd=3.6.1"},
		},
		"a skipped minor version of Kubernetes": {
			spec: &v1alpha1.Versions{Kubernetes: "1.36.0"}, inForce: versions.InForce{Accepted: &old, Masters: masters(old)},
			want: outcome{Versions: old, Refused: "spec.versions requests kubernetes 1.36.0, but 1.34.1 is in use" + noJump + "1.34" + permit + "kubernetes=1.36.0"},
		},
		"a skipped minor version without machines": {
			spec: &v1alpha1.Versions{Kubernetes: "1.36.0"}, inForce: versions.InForce{Accepted: &old},
			want: outcome{Versions: old, Refused: "spec.versions requests kubernetes 1.36.0, but 1.34.1 is in use" + noJump + "1.34" + permit + "kubernetes=1.36.0"},
		},
		"the next but one while a master has not been ordered to run the next": {
			spec: &v1alpha1.Versions{Kubernetes: "1.36.0"}, inForce: versions.InForce{Accepted: &now, Masters: masters(now, old, now)},
			want: outcome{Versions: now, Refused: "spec.versions requests kubernetes 1.36.0, but 1.35.4 is in use" + noJump + "1.34" + permit + "kubernetes=1.36.0"},
		},
		"a permission for another version": {
			spec: &v1alpha1.Versions{Kubernetes: "1.34.1"}, inForce: versions.InForce{Accepted: &now, Masters: masters(now), Allowed: "kubernetes=1.34.2,etcd=1.34.1"},
			want: outcome{Versions: now, Refused: "spec.versions requests kubernetes 1.34.1, but 1.35.4 is in use" + noReturn + permit + "kubernetes=1.34.1"},
		},
		"the next minor version while masters are not Ready": {
			spec: &v1alpha1.Versions{Kubernetes: "1.36.0"}, inForce: versions.InForce{Accepted: &now, Masters: notReady},
			want: outcome{Versions: now, Waits: "kubernetes 1.36.0 waits until all masters are Ready with 1.35.4: m1, m2; " +
				"to continue without waiting, set the annotation kvm-operator.giantswarm.io/allow-version: kubernetes=1.36.0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			requested := versions.Requested{Label: test.label, Spec: test.spec}
			if test.label != "" {
				requested.Release = fixture.MakeRelease(test.label, test.release)
			}
			verdict := versions.Resolve(requested, test.inForce)
			got := outcome{Versions: verdict.Versions, Waits: verdict.Waits}
			if p, ok := problem.As(verdict.Refused); ok {
				got.Refused = p.Message
				if p.Reason != "VersionChangeRefused" {
					t.Errorf("reason %s", p.Reason)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" || verdict.Err != nil {
				t.Errorf("err = %v, another verdict (-want +got):\n%s", verdict.Err, diff)
			}
		})
	}
}

// TestEveryTransition covers all pairs of supported minor versions and all ways in which two masters may have been
// ordered to run them: every accepted change is no downgrade for any master and skips no minor version of any, unless it
// was accepted before or is permitted.
func TestEveryTransition(t *testing.T) {
	kubernetes, etcd := []string{"1.34.2", "1.35.1", "1.35.4", "1.36.0"}, []string{"3.6.5", "3.7.0"}
	step := func(version string) int { return strings.Index("4567", version[3:4]) } // the last digit of 1.34 to 1.36
	if step("1.34.2") != 0 || step("1.36.0") != 2 {
		t.Fatal("step does not count minor versions")
	}
	taken, kept := 0, 0
	for _, accepted := range kubernetes {
		for _, first := range kubernetes {
			for _, second := range kubernetes {
				for _, wanted := range kubernetes {
					for _, e := range etcd {
						for _, f := range etcd {
							last := of(accepted, e)
							got := versions.Resolve(versions.Requested{Spec: &v1alpha1.Versions{Kubernetes: wanted, Etcd: f}},
								versions.InForce{Accepted: &last, Masters: masters(of(first, e), of(second, e))})
							if got.Versions == last {
								kept++
								continue
							}
							taken++
							lowest, highest := min(step(first), step(second)), max(step(first), step(second))
							if step(wanted) != step(accepted) && (step(wanted) < highest || step(wanted) > lowest+1) {
								t.Errorf("accepted %s, told %s and %s: %s is taken", accepted, first, second, wanted)
							}
							if f < e {
								t.Errorf("etcd goes from %s to %s", e, f)
							}
							if got.Refused != nil || got.Waits != "" {
								t.Errorf("%v is taken and yet refused: %v, %s", got.Versions, got.Refused, got.Waits)
							}
						}
					}
				}
			}
		}
	}
	if taken == 0 || kept == 0 {
		t.Errorf("%d taken, %d kept", taken, kept)
	}
	t.Logf("%d changes are taken, %d are not", taken, kept)
}
