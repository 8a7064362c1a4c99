// Package observe reads what the management cluster knows of workload clusters. The controllers share it, so that they
// agree on which clusters are reconciled, who owns a namespace, and which machines a cluster has.
package observe

import (
	"context"
	"slices"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/undecodable"
)

// IndexCluster is the name of the cache index over the label with the cluster's ID.
const IndexCluster = "cluster"

// Reader reads from the caches and, if a cache may lack an object, from the API server.
type Reader struct {
	// Cached reads from informers, and Live from the API server.
	Cached, Live client.Reader
}

// Gate says whether a controller reconciles a KVMConfig.
type Gate int

const (
	// Open means that the controller reconciles it.
	Open Gate = iota
	// Gone means that it does not exist.
	Gone
	// Paused means that the controller leaves it as it is: it is paused, it cannot be decoded, or the controller has
	// finished its deletion.
	Paused
	// Original means that giantswarm/kvm-operator manages the cluster.
	Original
)

// Config reads a KVMConfig and decides whether a controller reconciles it. finalizer is the controller's.
func (r Reader) Config(ctx context.Context, name types.NamespacedName, finalizer string) (*v1alpha1.KVMConfig, Gate, error) {
	config := &v1alpha1.KVMConfig{}
	switch err := r.Cached.Get(ctx, name, config); {
	case apierrors.IsNotFound(err):
		return nil, Gone, nil
	case err != nil:
		return nil, Gone, microerror.Mask(err)
	}
	done := config.DeletionTimestamp != nil && !slices.Contains(config.Finalizers, finalizer)
	// The spec of an object that cannot be decoded looks empty.
	if done || undecodable.Why(config) != "" || key.Paused(config.Annotations) {
		return config, Paused, nil
	}
	legacy, _, err := r.Legacy(ctx, config)
	if err != nil {
		return nil, Gone, err
	}
	if legacy {
		return config, Original, nil
	}
	return config, Open, nil
}

// Namespace reads the namespace of a cluster, and decides who owns it. The cache may lack a namespace that exists,
// because a user removed the label that the cache selects by. If the cluster had a namespace, the API server is read:
// on deletion, everything in the namespace would be left behind otherwise.
func (r Reader) Namespace(ctx context.Context, config *v1alpha1.KVMConfig) (*corev1.Namespace, state.Hold, error) {
	namespace, name := &corev1.Namespace{}, client.ObjectKey{Name: key.Namespace(config.Spec.Cluster.ID)}
	err := r.Cached.Get(ctx, name, namespace)
	was := meta.IsStatusConditionTrue(config.Status.Conditions, state.ConditionNamespace) || config.DeletionTimestamp != nil
	if apierrors.IsNotFound(err) && was {
		err = r.Live.Get(ctx, name, namespace)
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, "", microerror.Mask(err)
	}
	var former []corev1.Secret
	if own := key.OwnerKVMConfig(config, "namespace"); own.Names(namespace.Annotations) && !own.NamesExactly(namespace.Annotations) {
		if former, err = r.ownSecrets(ctx, config); err != nil {
			return nil, "", err
		}
	}
	return namespace, state.HoldOf(namespace, config, former), nil
}

// ownSecrets returns the Secrets in the namespace of a KVMConfig that name it, or a former one of its name.
func (r Reader) ownSecrets(ctx context.Context, config *v1alpha1.KVMConfig) ([]corev1.Secret, error) {
	var secrets []corev1.Secret
	for _, handler := range []string{"certificates", "randomkey"} {
		var list corev1.SecretList
		owned := client.MatchingFields{apply.IndexOwner: key.OwnerKVMConfig(config, handler).String()}
		if err := r.Cached.List(ctx, &list, client.InNamespace(config.Namespace), owned, client.DisableReadYourWritesConsistency); err != nil {
			return nil, microerror.Mask(err)
		}
		secrets = append(secrets, list.Items...)
	}
	return secrets, nil
}
