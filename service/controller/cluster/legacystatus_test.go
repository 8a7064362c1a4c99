package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

var earlier = metav1.NewTime(now.Add(-time.Hour))

// before returns a status.cluster of an hour ago, with conditions and versions as in "Updated Created | 1.0.0 2.0.0".
func before(t *testing.T, text string) *v1alpha1.LegacyClusterStatus {
	t.Helper()
	if text == "" {
		return nil
	}
	conditions, versions, ok := strings.Cut(text, "|")
	if !ok {
		t.Fatalf("the test's status %q has no |", text)
	}
	st := &v1alpha1.LegacyClusterStatus{}
	for _, name := range strings.Fields(conditions) {
		st.Conditions = append(st.Conditions, v1alpha1.LegacyCondition{Type: name, Status: "True", LastTransitionTime: earlier})
	}
	for _, semver := range strings.Fields(versions) {
		st.Versions = append(st.Versions, v1alpha1.LegacyVersion{Semver: semver, LastTransitionTime: earlier})
	}
	return st
}

// after returns a status.cluster in the same form; new entries have an asterisk.
func after(st *v1alpha1.LegacyClusterStatus) string {
	mark := func(at metav1.Time) string {
		if at.Time.Equal(now) {
			return "*"
		}
		return ""
	}
	var conditions, versions []string
	for _, c := range st.Conditions {
		if c.Status != "True" {
			return fmt.Sprintf("condition %s is %s", c.Type, c.Status)
		}
		conditions = append(conditions, c.Type+mark(c.LastTransitionTime))
	}
	for _, v := range st.Versions {
		versions = append(versions, v.Semver+mark(v.LastTransitionTime))
	}
	return strings.Join(conditions, " ") + " | " + strings.Join(versions, " ")
}

// legacySnapshot returns a snapshot with one node for each of versions, whose pod is Ready and has that version; "-" is
// a node that is not Ready.
func legacySnapshot(desired string, versions []string, status *v1alpha1.LegacyClusterStatus) *state.Cluster {
	config := fixture.MakeCluster("ab1cd").Obj()
	if desired != "" {
		config.Labels = map[string]string{key.LabelVersion: desired}
	}
	config.Status.Cluster = status
	s := &state.Cluster{Config: config}
	for i, version := range versions {
		n := state.Node{ID: fmt.Sprint("n", i), Role: key.RoleWorker, Ready: version != "-"}
		pod := readyPod(fmt.Sprint("worker-n", i))
		pod.Labels = map[string]string{key.LabelVersion: version}
		n.Pods = append(n.Pods, pod)
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// TestLegacyConditions covers every line of the original's table of conditions, and cases that the original missed.
func TestLegacyConditions(t *testing.T) {
	for name, test := range map[string]struct {
		before, desired string
		nodes           []string
		deleting        bool
		want            string
	}{
		"nothing is known yet: Creating":             {"", "2.0.0", []string{"-", "-"}, false, "Creating* | "},
		"Creating stays while a node is missing":     {"Creating |", "2.0.0", []string{"2.0.0", "-"}, false, "Creating | "},
		"Creating stays while a node is old":         {"Creating |", "2.0.0", []string{"2.0.0", "1.0.0"}, false, "Creating | "},
		"Creating stays without any node":            {"Creating |", "2.0.0", nil, false, "Creating | "},
		"all there: Created replaces Creating":       {"Creating |", "2.0.0", []string{"2.0.0", "2.0.0"}, false, "Created* | 2.0.0*"},
		"Created stays":                              {"Created | 2.0.0", "2.0.0", []string{"2.0.0"}, false, "Created | 2.0.0"},
		"Created stays when a node goes":             {"Created | 2.0.0", "2.0.0", []string{"-"}, false, "Created | 2.0.0"},
		"Created of the original gets its version":   {"Created |", "2.0.0", []string{"2.0.0"}, false, "Created | 2.0.0*"},
		"another version: Updating":                  {"Created | 1.0.0", "2.0.0", []string{"1.0.0"}, false, "Updating* Created | 1.0.0"},
		"another version: Updating replaces Updated": {"Updated Created | 0.9.0 1.0.0", "2.0.0", []string{"1.0.0"}, false, "Updating* Created | 0.9.0 1.0.0"},
		"Updating stays while nodes are old":         {"Updating Created | 1.0.0", "2.0.0", []string{"2.0.0", "1.0.0"}, false, "Updating Created | 1.0.0"},
		"all new: Updated replaces Updating":         {"Updating Created | 1.0.0", "2.0.0", []string{"2.0.0", "2.0.0"}, false, "Updated* Created | 1.0.0 2.0.0*"},
		"Updated stays":                              {"Updated Created | 1.0.0 2.0.0", "2.0.0", []string{"2.0.0"}, false, "Updated Created | 1.0.0 2.0.0"},
		"five versions are kept": {
			"Updating Created | 1.0.0 1.1.0 1.2.0 1.3.0 1.4.0", "2.0.0", []string{"2.0.0"}, false,
			"Updated* Created | 1.1.0 1.2.0 1.3.0 1.4.0 2.0.0*",
		},
		"back to an old version ends too":        {"Updating Created | 1.0.0 2.0.0", "1.0.0", []string{"1.0.0"}, false, "Updated* Created | 2.0.0 1.0.0*"},
		"without version there is nothing to do": {"Created | 1.0.0", "", []string{""}, false, "Created | 1.0.0"},
		"without version from the start":         {"Creating |", "", []string{""}, false, "Created* | "},
		"deleting: Deleting in front":            {"Created | 1.0.0", "1.0.0", []string{"1.0.0"}, true, "Deleting* Created | 1.0.0"},
		"deleting before anything was known":     {"", "1.0.0", nil, true, "Deleting* | "},
		"Deleting stays":                         {"Deleting Created | 1.0.0", "2.0.0", []string{"-"}, true, "Deleting Created | 1.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := legacySnapshot(test.desired, test.nodes, before(t, test.before))
			if test.deleting {
				s.Config.DeletionTimestamp = &earlier
			}
			got := legacyStatus(s, now)
			if diff := cmp.Diff(test.want, after(got)); diff != "" {
				t.Errorf("another status (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLegacyStatusComesToRest starts from every state of the table above: if nothing else changes, some pass has to
// change nothing, because the status of an idle cluster would be written endlessly otherwise.
func TestLegacyStatusComesToRest(t *testing.T) {
	for _, start := range []string{"", "Creating |", "Created |", "Created | 1.0.0", "Updating Created | 1.0.0", "Updated Created | 1.0.0 2.0.0", "Updated Created | 2.0.0 1.0.0"} {
		for _, desired := range []string{"", "1.0.0", "2.0.0", "3.0.0"} {
			for _, node := range []string{"-", "", "1.0.0", "2.0.0", "3.0.0"} {
				s := legacySnapshot(desired, []string{node}, before(t, start))
				passes := 0
				for ; passes < 10; passes++ {
					next := legacyStatus(s, now.Add(time.Duration(passes)*time.Minute))
					if s.Config.Status.Cluster != nil && cmp.Equal(s.Config.Status.Cluster, next) {
						break
					}
					s.Config.Status.Cluster = next
				}
				if passes == 10 {
					t.Errorf("from %q with version %q and a node of version %q it never rests: %s", start, desired, node, after(s.Config.Status.Cluster))
				}
			}
		}
	}
}

// TestLegacyNodesKeepTheirTimes: nodes keep their times unless they changed.
func TestLegacyNodesKeepTheirTimes(t *testing.T) {
	node := func(name, version string, at metav1.Time) v1alpha1.LegacyNode {
		return v1alpha1.LegacyNode{Name: name, Version: version, Labels: map[string]string{"role": "worker"}, LastTransitionTime: at}
	}
	status := before(t, "Created | 1.0.0")
	status.Nodes = []v1alpha1.LegacyNode{node("worker-n0", "1.0.0", earlier), node("worker-n1", "1.0.0", earlier), node("worker-n9", "1.0.0", earlier)}
	got := legacyStatus(legacySnapshot("2.0.0", []string{"1.0.0", "2.0.0", "-"}, status), now)
	want := []v1alpha1.LegacyNode{node("worker-n0", "1.0.0", earlier), node("worker-n1", "2.0.0", metav1.NewTime(now))}
	if diff := cmp.Diff(want, got.Nodes); diff != "" {
		t.Errorf("other nodes (-want +got):\n%s", diff)
	}
}

// TestLegacyFieldsOfOthersStay: cluster-operator wrote scaling there.
func TestLegacyFieldsOfOthersStay(t *testing.T) {
	status := before(t, "Created | 1.0.0")
	status.Scaling.DesiredCapacity, status.Network.CIDR = 3, "10.0.0.0/24"
	got := legacyStatus(legacySnapshot("1.0.0", []string{"1.0.0"}, status), now)
	if diff := cmp.Diff([]any{int32(3), "10.0.0.0/24"}, []any{got.Scaling.DesiredCapacity, got.Network.CIDR}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
