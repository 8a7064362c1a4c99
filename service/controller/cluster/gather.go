package cluster

import (
	"context"
	"errors"
	"slices"

	"github.com/giantswarm/microerror"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/observe"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/plan"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/etcdrestore"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/etcdretired"
)

// Gather reads everything that the handlers decide on, and plans.
func (r *Reconciler) Gather(ctx context.Context, config *v1alpha1.KVMConfig) (*state.Cluster, error) {
	observed, err := r.observe(ctx, config)
	if err != nil {
		return nil, err
	}
	return r.planner.Plan(observed, r.Clock.Now()), nil
}

// observe reads what is known of a cluster, nearly all of it from caches.
func (r *Reconciler) observe(ctx context.Context, config *v1alpha1.KVMConfig) (plan.Observed, error) {
	namespace, hold, err := r.reader().Namespace(ctx, config)
	if err != nil {
		return plan.Observed{}, microerror.Mask(err)
	}
	o := plan.Observed{Settings: r.Settings, Connects: r.Workloads != nil, Doubt: r.doubt(), Namespace: *namespace, Hold: hold, Config: config}
	if o.Connects { // without them, it would never be known that etcd was founded
		o.Config, o.AwaitingFounding = state.HoldFounders(config, namespace, hold)
		o.Workload, o.Etcd = r.Workloads.known(config)
	}
	var volumes corev1.PersistentVolumeList
	o.Objects, err = r.reader().Objects(ctx, o.Config)
	err = errors.Join(
		err,
		readRelease(ctx, r.Client, o.Config, &o),
		r.readSecrets(ctx, &o),
		r.readBootData(ctx, &o),
		r.readJobs(ctx, &o),
		r.readIngresses(ctx, &o),
		r.Client.List(ctx, &volumes),
		readServices(ctx, r.Client, config.Spec.Cluster.ID, &o.Services),
	)
	o.Volumes = volumes.Items
	return o, microerror.Mask(err)
}

// readSecrets reads the Secrets that may have key pairs and keys of the cluster, and its kubeconfig. Lists are of the
// namespaces that may have such Secrets. A list that waits until the cache has the operator's own writes would wait for
// those of all clusters, so the cluster's own Secrets are read by name.
func (r *Reconciler) readSecrets(ctx context.Context, o *plan.Observed) error {
	cluster := o.Config.Spec.Cluster
	own := []client.ObjectKey{{Namespace: key.Namespace(cluster.ID), Name: key.KubeconfigName(cluster.ID)}}
	for _, name := range state.RandomKeys {
		own = append(own, client.ObjectKey{Namespace: o.Config.Namespace, Name: key.SecretName(cluster.ID, name)})
	}
	for _, request := range state.CertificateRequests(state.WithDefaults(o.Config), r.Settings) {
		own = append(own, client.ObjectKey{Namespace: o.Config.Namespace, Name: key.SecretName(cluster.ID, request.Name)})
	}
	for _, object := range own {
		secret, err := read(ctx, r.Client, object, &corev1.Secret{})
		if err != nil {
			return err
		}
		if secret != nil {
			o.Secrets = append(o.Secrets, *secret)
		}
	}
	for _, namespace := range r.secretPlaces(o.Config) {
		var list corev1.SecretList
		err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{observe.IndexCluster: cluster.ID},
			client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy)
		if err != nil {
			return err
		}
		for i := range list.Items {
			if other := &list.Items[i]; !slices.Contains(own, client.ObjectKeyFromObject(other)) {
				o.Secrets = append(o.Secrets, *other.DeepCopy())
			}
		}
	}
	return nil
}

// readBootData reads the boot data of nodes with machines. Of masters that are no longer in the spec only the public
// part matters.
func (r *Reconciler) readBootData(ctx context.Context, o *plan.Observed) error {
	o.BootData = map[string]plan.BootData{}
	for _, n := range state.NewNodes(o.Config.Spec) {
		if o.Deployments[key.DeploymentName(n.Role, n.ID)] == nil {
			continue
		}
		if err := r.readHalves(ctx, o, n.Role, n.ID, true); err != nil {
			return err
		}
	}
	for _, d := range o.Retired {
		if err := r.readHalves(ctx, o, key.RoleMaster, d.Labels[key.LabelNode], false); err != nil {
			return err
		}
	}
	return nil
}

// readHalves reads the public half of the boot data of a node, and maybe the private one.
func (r *Reconciler) readHalves(ctx context.Context, o *plan.Observed, role, id string, private bool) (err error) {
	cluster := o.Config.Spec.Cluster.ID
	object := client.ObjectKey{Namespace: key.Namespace(cluster), Name: key.BootDataName(role, cluster, id)}
	var data plan.BootData
	if private {
		if data.Private, err = read(ctx, r.Client, object, &corev1.Secret{}); err != nil {
			return err
		}
	}
	if data.Public, err = read(ctx, r.Client, object, &corev1.ConfigMap{}); err != nil {
		return err
	}
	o.BootData[object.Name] = data
	return nil
}

// read reads an object into the one that is given. It returns nil if there is none.
func read[T client.Object](ctx context.Context, reader client.Reader, name client.ObjectKey, into T) (T, error) {
	err := reader.Get(ctx, name, into)
	if err != nil {
		var none T
		return none, client.IgnoreNotFound(err)
	}
	return into, nil
}

// readJobs reads the objects that take and restore snapshots of etcd, and the Jobs on data that masters have left on
// hosts. A Job that is missing in the list because it was created seconds ago does not matter, because it has not ended
// yet.
func (r *Reconciler) readJobs(ctx context.Context, o *plan.Observed) error {
	var err error
	if len(o.Config.Status.Retired) > 0 {
		if o.Retirements, err = r.jobs(ctx, o.Config, etcdretired.Name); err != nil {
			return err
		}
	}
	if o.Config.Spec.Etcd == nil {
		return nil
	}
	if o.Restores, err = r.jobs(ctx, o.Config, etcdrestore.Name); err != nil {
		return err
	}
	name := client.ObjectKey{Namespace: key.Namespace(o.Config.Spec.Cluster.ID), Name: key.EtcdSnapshotName}
	o.Snapshots, err = read(ctx, r.Client, name, &batchv1.CronJob{})
	return err
}

// jobs lists the Jobs of a handler.
func (r *Reconciler) jobs(ctx context.Context, config *v1alpha1.KVMConfig, handler string) ([]batchv1.Job, error) {
	var list batchv1.JobList
	err := r.Client.List(ctx, &list, client.InNamespace(key.Namespace(config.Spec.Cluster.ID)), client.DisableReadYourWritesConsistency,
		client.MatchingFields{apply.IndexOwner: key.OwnerKVMConfig(config, handler).String()})
	return list.Items, err
}

// readRelease reads the Release that a KVMConfig names, if there is one.
func readRelease(ctx context.Context, reader client.Reader, config *v1alpha1.KVMConfig, o *plan.Observed) (err error) {
	if label := config.Labels[key.LabelReleaseVersion]; label != "" {
		o.Release, err = read(ctx, reader, client.ObjectKey{Name: versions.ReleaseName(label)}, &releasev1alpha1.Release{})
	}
	return err
}

// readServices reads the Services of a cluster.
func readServices(ctx context.Context, reader client.Reader, id string, s *plan.Services) error {
	var errs []error
	for name, service := range map[string]*corev1.Service{key.RoleMaster: &s.Master, key.RoleWorker: &s.Worker, key.PublishedService: &s.API} {
		errs = append(errs, client.IgnoreNotFound(reader.Get(ctx, client.ObjectKey{Namespace: key.Namespace(id), Name: name}, service)))
	}
	return errors.Join(errs...)
}

// secretPlaces returns the namespaces that may have key pairs and keys of the cluster: the KVMConfig's, and those to
// adopt from.
func (r *Reconciler) secretPlaces(config *v1alpha1.KVMConfig) []string {
	places := append([]string{config.Namespace}, r.Settings.AdoptFrom...)
	slices.Sort(places)
	return slices.Compact(places)
}
