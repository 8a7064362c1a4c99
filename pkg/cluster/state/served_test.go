package state_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

func TestNothingIsNewerThanAnAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		wanted  string // empty: it cannot be resolved
		masters []string
		want    string
	}{
		"no node has joined":                   {"1.36.0", []string{"", ""}, "1.36.0"},
		"all have it":                          {"1.36.0", []string{"v1.36.0", "v1.36.0"}, "1.36.0"},
		"one has an older one":                 {"1.36.0", []string{"v1.36.0", "v1.35.4"}, "1.35.4"},
		"by its number and not by its name":    {"1.36.10", []string{"v1.36.9", "v1.36.10"}, "1.36.9"},
		"all have a newer one":                 {"1.35.4", []string{"v1.36.0", "v1.36.0"}, "1.35.4"},
		"the Release is gone":                  {"", []string{"v1.36.0", "v1.35.4"}, "1.35.4"},
		"the Release was never there":          {"", []string{"", ""}, ""},
		"a kubelet of the user's own build":    {"1.36.0", []string{"v1.35.4-own", "kwok-v0.8.0"}, "1.36.0"},
		"and the Release is gone":              {"", []string{"v1.35.4+own", "unknown"}, ""},
		"it is unknown, and then a node joins": {"", []string{"", "v1.36.0"}, "1.36.0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state.Cluster{}
			if s.Versions.Kubernetes = test.wanted; test.wanted == "" {
				s.VersionsErr = errors.New("no Release")
			}
			for i, version := range test.masters {
				pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i))}}
				s.Nodes = append(s.Nodes, state.Node{Role: key.RoleMaster, Pods: []corev1.Pod{pod}})
				if version != "" {
					node := corev1.Node{ObjectMeta: pod.ObjectMeta}
					node.Status.NodeInfo.KubeletVersion = version
					s.Workload.Nodes = append(s.Workload.Nodes, node)
				}
			}
			worker := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w"}}
			worker.Status.NodeInfo.KubeletVersion = "v1.30.0"
			s.Workload.Nodes = append(s.Workload.Nodes, worker)
			if got := s.ServedKubernetes(); got != test.want {
				t.Errorf("it is %q, want %q", got, test.want)
			}
		})
	}
}
