package cluster

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/etcdretired"
)

// readRetirements reads the Jobs on etcd data that masters have left on hosts.
func (r *Reconciler) readRetirements(ctx context.Context, config *v1alpha1.KVMConfig, w *world) error {
	if len(config.Status.Retired) == 0 {
		return nil
	}
	var err error
	w.retirements, err = r.jobs(ctx, config, etcdretired.Name)
	return err
}

// jobs lists the Jobs of a handler.
func (r *Reconciler) jobs(ctx context.Context, config *v1alpha1.KVMConfig, handler string) ([]batchv1.Job, error) {
	var list batchv1.JobList
	err := r.Client.List(ctx, &list, client.InNamespace(key.Namespace(config.Spec.Cluster.ID)), client.DisableReadYourWritesConsistency,
		client.MatchingFields{apply.IndexOwner: key.OwnerKVMConfig(config, handler).String()})
	return list.Items, err
}
