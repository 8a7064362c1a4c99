package plan

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// TestWhereTheDataOfAMasterIs: what is recorded counts. Before that it is where a machine of the master has it, and a
// master that returns gets the data back that it left, unless that is being renamed.
func TestWhereTheDataOfAMasterIs(t *testing.T) {
	const mark, other = "0123456789abcdef", "fedcba9876543210"
	in := func(mark string) corev1.PodSpec {
		path := corev1.HostPathVolumeSource{Path: key.EtcdHostPath("ab1cd", mark, "m0aaa")}
		return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "etcd-data", VolumeSource: corev1.VolumeSource{HostPath: &path}}}}
	}
	left := func(phase string) func(*state.Cluster, *state.Node, *batchv1.Job) {
		return func(s *state.Cluster, _ *state.Node, _ *batchv1.Job) {
			s.Config.Status.Retired = []v1alpha1.RetiredData{{ID: "m0aaa", Phase: phase, EtcdHost: "h9", EtcdMark: other, EtcdMember: "9"}}
		}
	}
	fresh := (&state.Cluster{Config: fixture.MakeCluster("ab1cd").Obj()}).NewEtcdMark("m0aaa")
	for name, test := range map[string]struct {
		change             func(*state.Cluster, *state.Node, *batchv1.Job)
		host, mark, member string
	}{
		"nothing is known": {func(*state.Cluster, *state.Node, *batchv1.Job) {}, "", fresh, ""},
		"it is recorded": {func(s *state.Cluster, n *state.Node, _ *batchv1.Job) {
			s.Config.Status.Nodes = []v1alpha1.NodeStatus{{ID: "m0aaa", Role: key.RoleMaster, EtcdHost: "h1", EtcdMark: mark, EtcdMember: "1"}}
			n.Deployment = &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: in(other)}}}
		}, "h1", mark, "1"},
		"that of a worker with its ID is recorded": {func(s *state.Cluster, _ *state.Node, _ *batchv1.Job) {
			s.Config.Status.Nodes = []v1alpha1.NodeStatus{{ID: "m0aaa", Role: key.RoleWorker, EtcdHost: "h1", EtcdMark: mark}}
		}, "", fresh, ""},
		"its Deployment has it": {func(_ *state.Cluster, n *state.Node, _ *batchv1.Job) {
			n.Deployment = &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: in(mark)}}}
		}, "", mark, ""},
		"its pod has it": {func(_ *state.Cluster, n *state.Node, _ *batchv1.Job) { n.Pods = []corev1.Pod{{Spec: in(mark)}} }, "", mark, ""},
		"a Job puts a snapshot there": {func(_ *state.Cluster, _ *state.Node, j *batchv1.Job) {
			j.Spec.Template.Labels, j.Spec.Template.Spec = map[string]string{key.LabelNode: "m0aaa"}, in(mark)
		}, "", mark, ""},
		"the Job is that of another master": {func(_ *state.Cluster, _ *state.Node, j *batchv1.Job) {
			j.Spec.Template.Labels, j.Spec.Template.Spec = map[string]string{key.LabelNode: "m1aaa"}, in(mark)
		}, "", fresh, ""},
		"it left it":                 {left(state.RetiredLeft), "h9", other, "9"},
		"what it left is renamed":    {left(state.RetiredRenaming), "", fresh, ""},
		"what it left has been kept": {left(state.RetiredKept), "", fresh, ""},
		"it is on a volume": {func(s *state.Cluster, n *state.Node, j *batchv1.Job) {
			left(state.RetiredLeft)(s, n, j)
			s.Config.Spec.KVM.K8sKVM.StorageType = v1alpha1.StorageTypePersistentVolume
		}, "", "", ""},
		"it is a worker": {func(s *state.Cluster, n *state.Node, j *batchv1.Job) {
			left(state.RetiredLeft)(s, n, j)
			n.Role = key.RoleWorker
		}, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, n, job := &state.Cluster{Config: fixture.MakeCluster("ab1cd").Obj()}, &state.Node{ID: "m0aaa", Role: key.RoleMaster}, batchv1.Job{}
			test.change(s, n, &job)
			findData(s, n, []batchv1.Job{job})
			if n.EtcdHost != test.host || n.EtcdMark != test.mark || n.EtcdMember != test.member {
				t.Errorf("host %q, mark %q, member %q; want %q, %q, %q", n.EtcdHost, n.EtcdMark, n.EtcdMember, test.host, test.mark, test.member)
			}
		})
	}
}

// TestWhichMachinesStay: the machine of a master that is no longer in the spec stays until it is known that its member is
// out of etcd. A worker that was removed, and a master whose member is out, go.
func TestWhichMachinesStay(t *testing.T) {
	all := settled(t, fixture.MakeCluster("ab1cd").Masters(3).Workers(2))
	gone := all
	gone.Config = all.Config.DeepCopy()
	spec := &gone.Config.Spec
	spec.Cluster.Masters, spec.KVM.Masters = spec.Cluster.Masters[:2], spec.KVM.Masters[:2]
	spec.Cluster.Workers, spec.KVM.Workers = spec.Cluster.Workers[:1], spec.KVM.Workers[:1]
	gone.Retired = []appsv1.Deployment{*all.Deployments["master-m2aaa"]}
	for name, test := range map[string]struct {
		change func(*Observed)
		stays  bool
	}{
		"its member is in etcd":                        {func(*Observed) {}, true},
		"its member does not answer":                   {func(o *Observed) { o.Etcd.Members[2].Healthy = false }, true},
		"its member has no vote":                       {func(o *Observed) { o.Etcd.Members[2].Learner = true }, true},
		"its member has not started":                   {func(o *Observed) { o.Etcd.Members[2].Started, o.Etcd.Members[2].Name = false, "" }, true},
		"no member answers":                            {func(o *Observed) { o.Etcd = etcd.State{} }, true},
		"the workload cluster is not reached":          {func(o *Observed) { o.Workload = state.Workload{Reason: "Timeout"} }, true},
		"the operator does not connect":                {func(o *Observed) { o.Connects = false }, true},
		"its member is out":                            {func(o *Observed) { o.Etcd.Members = o.Etcd.Members[:2] }, false},
		"its member is out, and its Node is not Ready": {func(o *Observed) { o.Etcd.Members, o.Workload.Nodes = o.Etcd.Members[:2], nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := gone
			o.Objects, o.Etcd.Members = copied(gone.Objects), append([]etcd.Member(nil), all.Etcd.Members...)
			test.change(&o)
			s := planner.Plan(o, now)
			if got := len(s.Retiring) == 1 && s.Retiring[0].ID == "m2aaa"; got != test.stays || len(s.Gone) != 1 || len(s.Leaving) != 2 {
				t.Errorf("it stays: %t, want %t; gone: %d, pods that leave: %d", got, test.stays, len(s.Gone), len(s.Leaving))
			}
			departs := s.RemovedPods()
			if want := map[bool]int{true: 1, false: 2}[test.stays]; len(departs) != want || departs[len(departs)-1].Labels[key.LabelNode] != "w1aaa" {
				t.Errorf("%d pods depart, want %d", len(departs), want)
			}
			for _, n := range s.Retiring {
				if s.Rollout.Replace[n.ID] {
					t.Errorf("%s is replaced, and is only to end", n.ID)
				}
			}
		})
	}
}
