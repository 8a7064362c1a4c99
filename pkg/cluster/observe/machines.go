package observe

import (
	"context"
	"errors"
	"slices"

	"github.com/giantswarm/microerror"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// Machines reads the machines of a cluster. It finds none in a namespace that is not the cluster's.
func (r Reader) Machines(ctx context.Context, config *v1alpha1.KVMConfig, settings state.Settings, workload state.Workload) (*state.Machines, error) {
	namespace, hold, err := r.Namespace(ctx, config)
	if err != nil {
		return nil, err
	}
	config, _ = state.HoldFounders(config, namespace, hold)
	m := &state.Machines{Config: config, Settings: settings, Nodes: state.NewNodes(config.Spec), Workload: workload}
	if !state.OwnsNamespace(config, hold) {
		m.Workload = state.Workload{}
		return m, nil
	}
	found, err := r.Objects(ctx, config)
	if err != nil {
		return nil, err
	}
	m.Attach(found.Pods, found.Deployments)
	return m, nil
}

// Objects reads the pods and the Deployments of a cluster.
func (r Reader) Objects(ctx context.Context, config *v1alpha1.KVMConfig) (state.Objects, error) {
	var pods corev1.PodList
	id := config.Spec.Cluster.ID
	deployments, failed := r.deployments(ctx, config)
	retired, missing := r.retired(ctx, config)
	err := errors.Join(failed, missing, r.Cached.List(ctx, &pods, client.InNamespace(key.Namespace(id)), client.MatchingFields{IndexCluster: id}))
	return state.Objects{Pods: pods.Items, Deployments: deployments, Retired: retired}, microerror.Mask(err)
}

// deployments reads the Deployments by name, because a list that waits until the cache has the operator's own writes
// would wait for those of all clusters.
func (r Reader) deployments(ctx context.Context, config *v1alpha1.KVMConfig) (map[string]*appsv1.Deployment, error) {
	deployments := map[string]*appsv1.Deployment{}
	for _, n := range state.NewNodes(config.Spec) {
		name := key.DeploymentName(n.Role, n.ID)
		d := &appsv1.Deployment{}
		at := client.ObjectKey{Namespace: key.Namespace(config.Spec.Cluster.ID), Name: name}
		err := r.Cached.Get(ctx, at, d)
		if apierrors.IsNotFound(err) && hadPod(config, n) {
			// A user may have removed the label that the cache selects by.
			err = r.Live.Get(ctx, at, d)
		}
		if err == nil {
			deployments[name] = d
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return deployments, nil
}

// hadPod returns whether the status has a pod of the node.
func hadPod(config *v1alpha1.KVMConfig, n state.Node) bool {
	return slices.ContainsFunc(config.Status.Nodes, func(st v1alpha1.NodeStatus) bool { return st.ID == n.ID && st.Role == n.Role && st.Pod != "" })
}

// retired lists the masters' Deployments that the spec does not name. A Deployment that is missing in the list because
// it was created seconds ago has no member yet.
func (r Reader) retired(ctx context.Context, config *v1alpha1.KVMConfig) ([]appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	owner := key.OwnerKVMConfig(config, "deployment").String()
	err := r.Cached.List(ctx, &list, client.InNamespace(key.Namespace(config.Spec.Cluster.ID)), client.MatchingFields{apply.IndexOwner: owner},
		client.DisableReadYourWritesConsistency)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(d appsv1.Deployment) bool {
		named := func(n v1alpha1.Node) bool { return n.ID == d.Labels[key.LabelNode] }
		return d.Labels[key.LabelApp] != key.RoleMaster || slices.ContainsFunc(config.Spec.Cluster.Masters, named)
	}), nil
}
