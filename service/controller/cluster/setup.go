package cluster

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/observe"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
)

const (
	// reconcileTimeout bounds one reconcile of one cluster, and storeTimeout the time that is left to store its status
	// after that.
	reconcileTimeout = 2 * time.Minute
	storeTimeout     = 20 * time.Second
)

// Indexes of the cache over KVMConfigs.
const (
	indexRelease     = "metadata.labels.release"
	indexHostVolumes = "spec.kvm.hostVolumes"
	// indexHost is an index over Ingresses.
	indexHost = "spec.rules.host"
)

// Kinds are the kinds of object that the controller creates; the cache needs the index apply.IndexOwner over each.
func Kinds() []client.Object { return apply.Kinds(Resources()) }

// Resources are the handlers of the chain that are functions from the state to objects, with placeholders for keys that
// are missing.
func Resources() []apply.Resource[*state.Cluster] {
	return apply.Resources((&Reconciler{Issuer: pki.Placeholder{}}).chain())
}

// SetupIndexes adds the indexes that the controllers use. kinds are those of all objects that they create.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer, kinds []client.Object) error {
	for _, kind := range kinds {
		if err := indexer.IndexField(ctx, kind, apply.IndexOwner, apply.OwnerOf); err != nil {
			return microerror.Mask(err)
		}
	}
	for _, kind := range []client.Object{&corev1.Secret{}, &corev1.Pod{}} {
		if err := indexer.IndexField(ctx, kind, observe.IndexCluster, label(key.LabelGSCluster)); err != nil {
			return microerror.Mask(err)
		}
	}
	if err := indexer.IndexField(ctx, &v1alpha1.KVMConfig{}, observe.IndexCluster, clusterID); err != nil {
		return microerror.Mask(err)
	}
	if err := indexer.IndexField(ctx, &v1alpha1.KVMConfig{}, indexHostVolumes, hostVolumes); err != nil {
		return microerror.Mask(err)
	}
	if err := indexer.IndexField(ctx, &networkingv1.Ingress{}, indexHost, hosts); err != nil {
		return microerror.Mask(err)
	}
	return microerror.Mask(indexer.IndexField(ctx, &v1alpha1.KVMConfig{}, indexRelease, label(key.LabelReleaseVersion)))
}

// hostVolumes indexes the KVMConfigs that use persistent volumes.
func hostVolumes(object client.Object) []string {
	for _, m := range object.(*v1alpha1.KVMConfig).Spec.KVM.Workers {
		if len(m.HostVolumes) > 0 {
			return []string{"true"}
		}
	}
	return nil
}

func label(name string) client.IndexerFunc {
	return func(object client.Object) []string {
		if value := object.GetLabels()[name]; value != "" {
			return []string{value}
		}
		return nil
	}
}

func clusterID(object client.Object) []string {
	return []string{object.(*v1alpha1.KVMConfig).Spec.Cluster.ID}
}

// SetupWithManager makes the controller run when one of the objects that it reads changes.
func (r *Reconciler) SetupWithManager(m manager.Manager) error {
	b := builder.ControllerManagedBy(m).Named(Name).For(&v1alpha1.KVMConfig{}, builder.WithPredicates(news())).
		WithOptions(reconciler.Options(m, Name, reconcileTimeout))
	for _, kind := range Kinds() {
		b = b.Watches(kind, handler.EnqueueRequestsFromMapFunc(r.reader().OfOwner))
	}
	if r.Workloads != nil {
		if err := m.Add(r.Workloads.Pool); err != nil {
			return microerror.Mask(err)
		}
		if err := m.Add(r.Workloads.Members); err != nil {
			return microerror.Mask(err)
		}
		b = b.WatchesRawSource(r.Workloads.Source())
	}
	return microerror.Mask(b.
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.reader().OfCluster)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.ofVolume)).
		Watches(&releasev1alpha1.Release{}, handler.EnqueueRequestsFromMapFunc(r.ofRelease)).
		Complete(&r.Loop))
}

// news passes over updates that change nothing but the words of this controller's conditions.
func news() reconciler.News {
	return reconciler.News{
		Conditions: func(o client.Object) []metav1.Condition { return o.(*v1alpha1.KVMConfig).Status.Conditions },
		Foreign:    func(kind string) bool { return slices.Contains(state.ConditionsOfOthers, kind) },
	}
}

// ofRelease finds the KVMConfigs that chose the Release.
func (r *Reconciler) ofRelease(ctx context.Context, object client.Object) []reconcile.Request {
	version := strings.TrimPrefix(object.GetName(), versions.ReleaseName(""))
	return append(r.reader().Find(ctx, client.MatchingFields{indexRelease: version}), r.reader().Find(ctx, client.MatchingFields{indexRelease: object.GetName()})...)
}

// ofVolume finds the KVMConfigs with host volumes.
func (r *Reconciler) ofVolume(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.reader().Find(ctx, client.MatchingFields{indexHostVolumes: "true"})
}
