package cluster

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	snapshot "github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/etcdretired"
)

// findData sets from the status where the data of a master is, and of which member it is. A master that returns to the
// spec before its data is removed uses that data again.
func findData(s *snapshot.Snapshot, n *snapshot.Node) {
	if known := statusOf(s.Config.Status.Nodes, n.Role, n.ID); known != nil {
		n.EtcdHost, n.EtcdClaim, n.EtcdMember = known.EtcdHost, known.EtcdClaim, known.EtcdMember
		n.EtcdMark = known.EtcdMark
	}
	if left := s.Left(n.ID); s.EtcdOnHost(*n) && n.EtcdHost == "" && left != nil {
		n.EtcdHost, n.EtcdMark, n.EtcdMember = left.EtcdHost, left.EtcdMark, left.EtcdMember
	}
	if s.EtcdOnHost(*n) && n.EtcdHost == "" && n.EtcdMark == "" {
		n.EtcdMark = etcdMark(s, n)
	}
}

// etcdMark returns the mark of the directory of a master's data before it is known on which host that is. If machines
// exist already it is theirs, because an earlier version of the operator may have created them.
func etcdMark(s *snapshot.Snapshot, n *snapshot.Node) string {
	var made []corev1.PodSpec
	if n.Deployment != nil {
		made = append(made, n.Deployment.Spec.Template.Spec)
	}
	for _, pod := range n.Pods {
		made = append(made, pod.Spec)
	}
	for i := range made {
		if directory := nodepod.EtcdDirectory(&made[i]); directory != "" {
			return key.EtcdMarkOf(s.ID(), directory)
		}
	}
	return s.NewEtcdMark(n.ID)
}

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
