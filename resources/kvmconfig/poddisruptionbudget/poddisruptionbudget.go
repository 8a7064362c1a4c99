// Package poddisruptionbudget is the handler of the budgets that keep evictions on the management cluster, such as
// those of `kubectl drain`, from stopping too many nodes of a cluster at once.
package poddisruptionbudget

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// New returns the handler.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{Handler: "poddisruptionbudget", Kinds: []client.Object{&policyv1.PodDisruptionBudget{}}, Build: build}
}

// build allows one master at a time, because etcd must keep quorum, and as many workers as a rollout may replace. A
// worker that is not Ready may always be evicted. A master that is not Ready may not, because its etcd member may be
// healthy.
func build(s *state.Cluster) (apply.Desired, error) {
	workers := int32(1)
	if r := s.Config.Spec.Rollout; r != nil {
		workers = max(workers, r.MaxUnavailable)
	}
	return apply.Desired{Objects: []client.Object{
		budget(s, key.RoleMaster, 1, policyv1.IfHealthyBudget), budget(s, key.RoleWorker, workers, policyv1.AlwaysAllow),
	}}, nil
}

func budget(s *state.Cluster, role string, unavailable int32, unhealthy policyv1.UnhealthyPodEvictionPolicyType) client.Object {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: s.Meta(role, state.App(role)),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt32(unavailable)), UnhealthyPodEvictionPolicy: ptr.To(unhealthy),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{key.LabelApp: role, key.LabelCluster: s.ID()}},
		},
	}
}
