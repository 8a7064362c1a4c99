package machine

import (
	"context"
	"time"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/util/workqueue"
	kubevirtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/jsonlog"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/service/controller/networkconfiguration"
)

// retryFirst and retryLast bound the back-off of a failing Machine.
const (
	retryFirst = time.Second
	retryLast  = 2 * time.Minute
)

const (
	// IndexMachine finds claims and DataVolumes by the Machine of their label.
	IndexMachine = "machine"
	// indexMAC finds Machines by the MAC addresses that they have or may get.
	indexMAC = "mac"
	// indexReference finds Machines by what they refer to for cloud-init.
	indexReference = "reference"
	// indexClass finds Machines by their MachineClass.
	indexClass = "spec.machineClass"
	// IndexAttached finds NetworkConfigurations by the Machines in their status.
	IndexAttached = "status.attachments.machine"
)

// Kinds are the kinds that the controller creates, besides those of KubeVirt.
func Kinds() []client.Object {
	return []client.Object{&corev1.PersistentVolumeClaim{}, &corev1.Secret{}}
}

// SetupIndexes adds the indexes that the controllers of Machines and of NetworkConfigurations use.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer, settings vitistack.Settings) error {
	for _, kind := range Kinds() {
		if err := indexer.IndexField(ctx, kind, apply.IndexOwner, apply.OwnerOf); err != nil {
			return microerror.Mask(err)
		}
	}
	if err := indexer.IndexField(ctx, &corev1.PersistentVolumeClaim{}, IndexMachine, NamesOf); err != nil {
		return microerror.Mask(err)
	}
	for name, index := range map[string]client.IndexerFunc{
		networkconfiguration.IndexNetwork: networkconfiguration.NetworksOf,
		indexMAC:                          func(o client.Object) []string { return vitistack.MACsOf(o.(*v1alpha1.Machine), settings.MACSet) },
		indexReference:                    references,
		indexClass:                        func(o client.Object) []string { return []string{o.(*v1alpha1.Machine).Spec.MachineClass} },
	} {
		if err := indexer.IndexField(ctx, &v1alpha1.Machine{}, name, index); err != nil {
			return microerror.Mask(err)
		}
	}
	return nil
}

// Attached is the function of IndexAttached.
func Attached(object client.Object) []string {
	var machines []string
	for _, a := range object.(*v1alpha1.NetworkConfiguration).Status.Attachments {
		machines = append(machines, a.Machine)
	}
	return machines
}

// NamesOf returns the Machines that the labels of an object name. It is the function of IndexMachine.
func NamesOf(object client.Object) []string {
	var names []string
	for _, label := range []string{v1alpha1.LabelMachine, v1alpha1.LabelSourceMachine} {
		if name := object.GetLabels()[label]; name != "" {
			names = append(names, name)
		}
	}
	return names
}

// references returns what a Machine refers to, as "<kind>/<name>".
func references(object client.Object) []string {
	var names []string
	for _, s := range vitistack.SourcesOf(object.(*v1alpha1.Machine)) {
		names = append(names, metadataOf(s.ConfigMap).Kind+"/"+s.Name)
	}
	return names
}

// SetupWithManager makes the controller run when a Machine, or what it depends on, changes. machines is the cache of
// Machines, and of what they consist of, and metadata that of References.
func (r *Reconciler) SetupWithManager(m manager.Manager, machines, metadata cache.Cache) error {
	made, err := controller.New(Name, m, controller.Options{
		Reconciler: r, MaxConcurrentReconciles: r.Workers, ReconciliationTimeout: reconcileTimeout,
		RateLimiter:    workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryLast),
		LogConstructor: jsonlog.Constructor(m.GetLogger(), "Machine"),
	})
	if err != nil {
		return microerror.Mask(err)
	}
	for _, s := range append(r.sourcesOf(machines), r.lateSources()...) {
		if err := made.Watch(s); err != nil {
			return microerror.Mask(err)
		}
	}
	for _, kind := range References() {
		events := handler.EnqueueRequestsFromMapFunc(r.referring(kind.GetObjectKind().GroupVersionKind().Kind))
		if err := made.Watch(source.Kind(metadata, kind, events, predicate.ResourceVersionChangedPredicate{})); err != nil {
			return microerror.Mask(err)
		}
	}
	return nil
}

// sourcesOf are the sources of kinds that are always there.
func (r *Reconciler) sourcesOf(c cache.Cache) []source.Source {
	own := handler.EnqueueRequestsFromMapFunc(labeled)
	spec := predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
	return []source.Source{
		source.Kind[client.Object](c, &v1alpha1.Machine{}, &handler.EnqueueRequestForObject{}, spec),
		source.Kind[client.Object](c, &v1alpha1.Machine{}, r.sharers()),
		source.Kind[client.Object](c, &corev1.PersistentVolumeClaim{}, own, reconciler.Changed{}),
		source.Kind[client.Object](c, &corev1.Secret{}, own, reconciler.Changed{}),
		source.Kind[client.Object](c, &storagev1.StorageClass{}, r.unstored(), predicate.Or[client.Object](predicate.AnnotationChangedPredicate{}, reconciler.Changed{})),
		r.wake.Source(),
	}
}

// lateSources are the sources of kinds that may be missing.
func (r *Reconciler) lateSources() []source.Source {
	named := &handler.EnqueueRequestForObject{} // a VirtualMachine and its instance have the name of the Machine
	return []source.Source{
		r.Sessions.KubeVirt.Source(&kubevirtv1.VirtualMachine{}, named, reconciler.Changed{}),
		r.Sessions.KubeVirt.Source(&kubevirtv1.VirtualMachineInstance{}, named, reconciler.Changed{}),
		r.Sessions.CDI.Source(&cdiv1.DataVolume{}, handler.EnqueueRequestsFromMapFunc(labeled), reconciler.Changed{}),
		r.Sessions.Networks.Source(&v1alpha1.NetworkConfiguration{}, r.attached()),
		r.Sessions.Classes.Source(&v1alpha1.MachineClass{}, handler.EnqueueRequestsFromMapFunc(r.ofClass), predicate.GenerationChangedPredicate{}),
	}
}
