package state

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/remediation"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// Machines is what a controller knows of a cluster if it needs only its machines and their Nodes.
type Machines struct {
	// Config is the KVMConfig, and Settings are the operator's.
	Config   *v1alpha1.KVMConfig
	Settings Settings
	// Nodes are all nodes, masters first, in the order of the spec, and Leaving the pods of nodes that are no longer in
	// the spec.
	Nodes   []Node
	Leaving []corev1.Pod
	// Workload is what is known of the workload cluster.
	Workload Workload
}

// Attach adds to every node its Deployment and its pods. deployments are by name.
func (m *Machines) Attach(pods []corev1.Pod, deployments map[string]*appsv1.Deployment) {
	for i := range m.Nodes {
		n := &m.Nodes[i]
		if d := deployments[key.DeploymentName(n.Role, n.ID)]; d != nil && ofCluster(m.Config, d) {
			n.Deployment = d
		}
		n.Pods = PodsOf(pods, *n)
	}
	m.Leaving = slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool {
		return p.Labels[key.LabelApp] == AppEtcdRestore || slices.ContainsFunc(m.Nodes, func(n Node) bool {
			return p.Labels[key.LabelNode] == n.ID && p.Labels[key.LabelApp] == n.Role
		})
	})
}

// ofCluster returns whether a Deployment is the cluster's, or one of the original's that is about to be adopted:
// without that, all machines would count as missing and be replaced at once.
func ofCluster(config *v1alpha1.KVMConfig, d *appsv1.Deployment) bool {
	return key.OwnerKVMConfig(config, "deployment").Names(d.Annotations) ||
		!ownership.Has(d.Annotations) && d.Labels[key.LabelGSCluster] == config.Spec.Cluster.ID
}

// Name returns the name of the KVMConfig.
func (m *Machines) Name() types.NamespacedName {
	return types.NamespacedName{Namespace: m.Config.Namespace, Name: m.Config.Name}
}

// Namespace returns the namespace of the cluster's objects.
func (m *Machines) Namespace() string { return key.Namespace(m.Config.Spec.Cluster.ID) }

// Pods returns the pods of all nodes, including those of nodes that are no longer in the spec.
func (m *Machines) Pods() []corev1.Pod { return allPods(m.Leaving, m.Nodes) }

func allPods(leaving []corev1.Pod, nodes []Node) []corev1.Pod {
	pods := slices.Clone(leaving)
	for _, n := range nodes {
		pods = append(pods, n.Pods...)
	}
	return pods
}

// Remediation returns whether unhealthy nodes are replaced, and after how long: the spec decides, else the annotation,
// else the operator's setting.
func (m *Machines) Remediation() (enabled bool, after time.Duration) {
	after = remediation.After
	if r := m.Config.Spec.Remediation; r != nil {
		if r.UnhealthyAfter != nil {
			after = r.UnhealthyAfter.Duration
		}
		return r.Enabled, after
	}
	return m.Settings.TerminateUnhealthyNodes || key.TerminatesUnhealthy(m.Config.Annotations), after
}

// StatusOf returns the status of a node. A worker may have the ID of a master that is being removed.
func StatusOf(nodes []v1alpha1.NodeStatus, role, id string) *v1alpha1.NodeStatus {
	i := slices.IndexFunc(nodes, func(n v1alpha1.NodeStatus) bool { return n.ID == id && n.Role == role })
	if i < 0 {
		return nil
	}
	return &nodes[i]
}
