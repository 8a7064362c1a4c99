package cluster

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/apply"
	snapshot "github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// readNamespace reads the namespace of the cluster, and decides whose it is. A namespace that there was is not gone because the cache does not
// show it: somebody may have removed the label by which the cache sees it, and on deletion what lies in it would be left behind.
func (r *Reconciler) readNamespace(ctx context.Context, config *v1alpha1.KVMConfig) (*corev1.Namespace, snapshot.Hold, error) {
	namespace, name := &corev1.Namespace{}, client.ObjectKey{Name: key.Namespace(config.Spec.Cluster.ID)}
	err := r.Client.Get(ctx, name, namespace)
	was := meta.IsStatusConditionTrue(config.Status.Conditions, snapshot.ConditionNamespace) || config.DeletionTimestamp != nil
	if apierrors.IsNotFound(err) && was {
		err = r.Live.Get(ctx, name, namespace)
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, "", err
	}
	var former []corev1.Secret
	if own := key.OwnerKVMConfig(config, "namespace"); own.Names(namespace.Annotations) && !own.NamesExactly(namespace.Annotations) {
		if former, err = r.ownSecrets(ctx, config); err != nil {
			return nil, "", err
		}
	}
	return namespace, snapshot.HoldOf(namespace, config, former), nil
}

// ownSecrets are the Secrets beside a KVMConfig that name it, or a former one of its name.
func (r *Reconciler) ownSecrets(ctx context.Context, config *v1alpha1.KVMConfig) ([]corev1.Secret, error) {
	var secrets []corev1.Secret
	for _, handler := range []string{"certificates", "randomkey"} {
		var list corev1.SecretList
		owned := client.MatchingFields{apply.IndexOwner: key.OwnerKVMConfig(config, handler).String()}
		if err := r.Client.List(ctx, &list, client.InNamespace(config.Namespace), owned, client.DisableReadYourWritesConsistency); err != nil {
			return nil, err
		}
		secrets = append(secrets, list.Items...)
	}
	return secrets, nil
}

// secretPlaces are the namespaces whose Secrets may be the cluster's: the KVMConfig's, the cluster's, and those to adopt from.
func (r *Reconciler) secretPlaces(config *v1alpha1.KVMConfig) []string {
	places := append([]string{config.Namespace, key.Namespace(config.Spec.Cluster.ID)}, r.Settings.AdoptFrom...)
	slices.Sort(places)
	return slices.Compact(places)
}

// outside is what was read without what lies in the cluster's namespace, which is somebody else's: nothing in it is believed.
func (w world) outside() world {
	return world{release: w.release, secrets: w.secrets, volumes: w.volumes, hold: w.hold}
}
