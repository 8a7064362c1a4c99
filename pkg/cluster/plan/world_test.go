package plan

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
)

// planner is shared because it remembers what it has rendered.
var planner = NewPlanner()

// settled returns what is observed of a cluster of which every node is Ready and up to date, every member of etcd is
// healthy, and the workload cluster is reached. All of it may be changed.
func settled(t *testing.T, c *fixture.Cluster) Observed {
	t.Helper()
	config := c.Obj()
	config.UID = "1"
	o := Observed{
		Config: config, Connects: true, Rendering: true, Hold: state.HoldOwn,
		Namespace: corev1.Namespace{ObjectMeta: metav1.ObjectMeta{UID: "2", Name: key.Namespace(config.Spec.Cluster.ID)}},
		Objects:   state.Objects{Deployments: map[string]*appsv1.Deployment{}}, BootData: map[string]BootData{},
		Workload: state.Workload{Connected: true, Now: now},
	}
	o.Services.Master = corev1.Service{ObjectMeta: metav1.ObjectMeta{UID: "3"}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}}
	config.Status.KVM = &v1alpha1.LegacyKVMStatus{NodeIndexes: planner.Plan(o, now).Indexes}
	founded := planner.Plan(o, now)
	o.Etcd.Members = healthy(founded, masterIDs(config)...)
	for _, m := range o.Etcd.Members {
		id := strings.TrimPrefix(m.Name, pki.EtcdMember(""))
		config.Status.Nodes = append(config.Status.Nodes, v1alpha1.NodeStatus{
			ID: id, Role: key.RoleMaster, EtcdMember: founded.MemberRecord(m.ID), EtcdHost: "host-master-" + id, EtcdMark: founded.NewEtcdMark(id),
		})
	}
	for range 2 { // the hash of a node with a member is that of one without a founding token
		o.Deployments, o.Pods, o.Workload.Nodes = map[string]*appsv1.Deployment{}, nil, nil
		s := planner.Plan(o, now)
		if s.BootDataErr != nil {
			t.Fatal(s.BootDataErr)
		}
		for _, n := range s.Nodes {
			d := deploymentOf(s, n)
			pod := podOf(d)
			o.Deployments[d.Name] = d
			o.Pods = append(o.Pods, pod)
			o.Workload.Nodes = append(o.Workload.Nodes, corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
				Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
			})
		}
	}
	return o
}

func masterIDs(config *v1alpha1.KVMConfig) (ids []string) {
	for _, n := range config.Spec.Cluster.Masters {
		ids = append(ids, n.ID)
	}
	return ids
}

// deploymentOf returns the Deployment of a node, as far as plans depend on it.
func deploymentOf(s *state.Cluster, n state.Node) *appsv1.Deployment {
	labels := map[string]string{key.LabelApp: n.Role, key.LabelNode: n.ID, key.LabelGSCluster: s.ID()}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name: key.DeploymentName(n.Role, n.ID), Namespace: s.Namespace(), Labels: labels, Annotations: s.Owner("deployment").Annotations(),
	}}
	d.Spec.Template.Labels, d.Spec.Template.Annotations = labels, map[string]string{
		key.AnnotationNodeHash: n.Hash,
		key.AnnotationComponentVersion + versions.ComponentKubernetes:     s.Versions.Kubernetes,
		key.AnnotationComponentVersion + versions.ComponentEtcd:           s.Versions.Etcd,
		key.AnnotationComponentVersion + versions.ComponentContainerLinux: s.Versions.ContainerLinux,
	}
	return d
}

// podOf returns a Ready pod of a Deployment.
func podOf(d *appsv1.Deployment) corev1.Pod {
	annotations := map[string]string{}
	for name, value := range d.Spec.Template.Annotations {
		annotations[name] = value
	}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name + "-x", Namespace: d.Namespace, UID: types.UID(d.Name), CreationTimestamp: metav1.NewTime(now), Labels: d.Spec.Template.Labels, Annotations: annotations,
		},
		Spec: corev1.PodSpec{NodeName: "host-" + d.Name},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.1.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: nodestep.Container, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		},
	}
}

// pod returns the pod of a node among what was observed.
func (o *Observed) pod(t *testing.T, id string) *corev1.Pod {
	t.Helper()
	for i := range o.Pods {
		if o.Pods[i].Labels[key.LabelNode] == id {
			return &o.Pods[i]
		}
	}
	t.Fatalf("node %s has no pod", id)
	return nil
}

// fall makes a node not Ready.
func (o *Observed) fall(t *testing.T, id string) {
	o.pod(t, id).Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
}

// age makes a node outdated: its Deployment and its pod are of an earlier revision.
func (o *Observed) age(t *testing.T, role, id string) {
	d := o.Deployments[key.DeploymentName(role, id)].DeepCopy()
	d.Spec.Template.Annotations[key.AnnotationNodeHash] = "earlier"
	o.Deployments[d.Name] = d
	o.pod(t, id).Annotations = d.Spec.Template.Annotations
}

// member returns the member of a master.
func (o *Observed) member(s *state.Cluster, id string) *etcd.Member {
	for i := range o.Etcd.Members {
		if s.EtcdMaster(id).Has(o.Etcd.Members[i]) {
			return &o.Etcd.Members[i]
		}
	}
	return nil
}

// TestSettled: nothing is to be done about a cluster that is as it should be. The other tests change it.
func TestSettled(t *testing.T) {
	s := planner.Plan(settled(t, fixture.MakeCluster("ab1cd").Masters(3).Workers(2)), now)
	for _, n := range s.Nodes {
		if !n.Ready || n.Outdated() || n.Step != nodestep.Ready {
			t.Errorf("node %s is Ready: %t (%s), outdated: %t, at step %s", n.ID, n.Ready, n.Message, n.Outdated(), n.Step)
		}
	}
	if len(s.Rollout.Replace)+len(s.Rollout.Waiting)+len(s.Retiring)+len(s.Leaving) > 0 || s.MinoritySince != nil || s.Founding || s.Restore.Phase() != etcd.NotRestoring {
		t.Errorf("something is to be done: %+v", s.Rollout)
	}
}
