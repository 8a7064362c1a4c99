package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdjob"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// runsWhere is the part of a pod's spec that says where and how it runs.
type runsWhere struct {
	Selector    map[string]string
	Tolerations []corev1.Toleration
	Secrets     []corev1.LocalObjectReference
	Priority    string
}

func placementOf(pod corev1.PodSpec) runsWhere {
	return runsWhere{pod.NodeSelector, pod.Tolerations, pod.ImagePullSecrets, pod.PriorityClassName}
}

// TestPodsRunWhereTheSettingsSay covers machines and the Jobs with etcd's data, which run only where masters do. No
// setting removes the role from the node selector.
func TestPodsRunWhereTheSettingsSay(t *testing.T) {
	s := simple()
	s.settings.Pods = state.PodSettings{
		PriorityClass: "machines", Tolerations: []corev1.Toleration{{Key: "machines", Operator: corev1.TolerationOpExists}}, PullSecrets: []string{"registry"},
		NodeSelector: map[string]string{"example.org/machines": "true", "role": "any"}, Annotations: map[string]string{"team": "platform", "endpoint.kvm.giantswarm.io/drained": "True"},
	}
	want := func(role string) runsWhere {
		return runsWhere{
			map[string]string{"example.org/machines": "true", "role": role}, []corev1.Toleration{{Key: "machines", Operator: corev1.TolerationOpExists}},
			[]corev1.LocalObjectReference{{Name: "registry"}}, "machines",
		}
	}
	for name, role := range map[string]string{"master-m0aaa": "master", "worker-w0aaa": "worker"} {
		template := deploymentOf(t, s.render(t), name).Spec.Template
		if diff := cmp.Diff(want(role), placementOf(template.Spec)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got := [2]string{template.Annotations["team"], template.Annotations["endpoint.kvm.giantswarm.io/drained"]}; got != [2]string{"platform", "False"} {
			t.Errorf("%s: annotations of the settings and of the operator are %v", name, got)
		}
	}
	job := batchv1.Job{}
	job.Spec.Template.Spec = etcdjob.Bare(&state.Cluster{Config: s.config, Settings: s.settings}, &corev1.Container{})
	if diff := cmp.Diff(want("master"), placementOf(job.Spec.Template.Spec)); diff != "" {
		t.Errorf("a Job with etcd's data (-want +got):\n%s", diff)
	}
}

// TestMachinesAreSpreadOverZones: each role is spread by itself.
func TestMachinesAreSpreadOverZones(t *testing.T) {
	for spread, want := range map[state.ZoneSpread][]corev1.UnsatisfiableConstraintAction{
		state.ZoneSpreadNone: nil, state.ZoneSpreadPreferred: {corev1.ScheduleAnyway}, state.ZoneSpreadRequired: {corev1.DoNotSchedule},
	} {
		s := simple()
		s.settings.Pods.ZoneSpread = spread
		var got []corev1.UnsatisfiableConstraintAction
		for _, c := range deploymentOf(t, s.render(t), "worker-w0aaa").Spec.Template.Spec.TopologySpreadConstraints {
			got = append(got, c.WhenUnsatisfiable)
			if diff := cmp.Diff(map[string]string{"app": "worker", "cluster": "ab1cd"}, c.LabelSelector.MatchLabels); diff != "" || c.TopologyKey != "topology.kubernetes.io/zone" {
				t.Errorf("%s: spread over %s:\n%s", spread, c.TopologyKey, diff)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", spread, diff)
		}
	}
}
