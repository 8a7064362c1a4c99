package cluster

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/plan"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// readIngresses reads the Ingresses that have the hosts of the cluster from the cache, which has the Ingresses of all
// clusters.
func (r *Reconciler) readIngresses(ctx context.Context, o *plan.Observed) error {
	if r.Settings.IngressClass == "" {
		return nil
	}
	for _, host := range state.IngressHosts(state.WithDefaults(o.Config)) {
		var list networkingv1.IngressList
		if err := r.Client.List(ctx, &list, client.MatchingFields{indexHost: host}, client.DisableReadYourWritesConsistency); err != nil {
			return err
		}
		o.Ingresses = append(o.Ingresses, list.Items...)
	}
	return nil
}

// hosts indexes Ingresses by their hosts.
func hosts(object client.Object) []string {
	var list []string
	for _, rule := range object.(*networkingv1.Ingress).Spec.Rules {
		if rule.Host != "" {
			list = append(list, rule.Host)
		}
	}
	return list
}
