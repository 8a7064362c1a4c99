package cluster

import (
	"context"
	"errors"
	"slices"

	"github.com/giantswarm/microerror"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/observe"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/rolling"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/etcdrestore"
)

// world is what gather reads, before it is evaluated.
type world struct {
	observe.Objects

	release *releasev1alpha1.Release
	secrets []corev1.Secret
	// held are the masters that only the recorded spec has, see state.HoldFounders.
	held      []string
	volumes   []corev1.PersistentVolume
	namespace corev1.Namespace
	// hold says which KVMConfig owns the namespace.
	hold      state.Hold
	services  Services
	ingresses []networkingv1.Ingress
	// restores are the Jobs of a restore, and snapshots is the CronJob that takes snapshots of etcd.
	restores  []batchv1.Job
	snapshots *batchv1.CronJob
	// retirements are the Jobs on etcd data that masters have left on hosts.
	retirements []batchv1.Job
}

// gather reads everything that the handlers decide on, only from caches.
func (r *Reconciler) gather(ctx context.Context, config *v1alpha1.KVMConfig) (*state.Cluster, error) {
	namespace, hold, err := r.reader().Namespace(ctx, config)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	var held []string
	if r.Workloads != nil { // without them, it would never be known that etcd was founded
		config, held = state.HoldFounders(config, namespace, hold)
	}
	w, err := r.read(ctx, config)
	if err != nil {
		return nil, err
	}
	w.namespace, w.hold, w.held = *namespace, hold, held
	s, err := r.complete(config, w)
	if err != nil {
		return nil, err
	}
	return s, r.changeKept(ctx, s, w.secrets)
}

func (r *Reconciler) read(ctx context.Context, config *v1alpha1.KVMConfig) (world, error) {
	var w world
	id := config.Spec.Cluster.ID
	var volumes corev1.PersistentVolumeList
	var failed error
	w.Objects, failed = r.reader().Objects(ctx, config)
	err := errors.Join(
		failed,
		readRelease(ctx, r.Client, config, &w),
		r.readSecrets(ctx, config, &w),
		r.readSnapshots(ctx, config, &w),
		r.readRetirements(ctx, config, &w),
		r.readIngresses(ctx, config, &w),
		r.Client.List(ctx, &volumes),
		w.services.read(ctx, r.Client, id),
	)
	w.volumes = volumes.Items
	return w, microerror.Mask(err)
}

// readSecrets lists the Secrets with the cluster's label in the namespaces that may have them. A list that waits until
// the cache has the operator's own writes would wait for those of all clusters, so Secrets that are missing in the list
// are read by name.
func (r *Reconciler) readSecrets(ctx context.Context, config *v1alpha1.KVMConfig, w *world) error {
	cluster := config.Spec.Cluster
	for _, namespace := range r.secretPlaces(config) {
		var list corev1.SecretList
		err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{observe.IndexCluster: cluster.ID}, client.DisableReadYourWritesConsistency)
		if err != nil {
			return err
		}
		w.secrets = append(w.secrets, list.Items...)
	}
	names := slices.Clone(state.RandomKeys)
	for _, request := range state.CertificateRequests(state.WithDefaults(config), r.Settings) {
		names = append(names, request.Name)
	}
	for _, name := range names {
		object := client.ObjectKey{Namespace: config.Namespace, Name: key.SecretName(cluster.ID, name)}
		if slices.ContainsFunc(w.secrets, func(s corev1.Secret) bool { return client.ObjectKeyFromObject(&s) == object }) {
			continue
		}
		var secret corev1.Secret
		err := r.Client.Get(ctx, object, &secret)
		if err == nil {
			w.secrets = append(w.secrets, secret)
		} else if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// readSnapshots reads the objects that take and restore snapshots of etcd. A Job that is missing in the list because it
// was created seconds ago does not matter, because it has not ended yet.
func (r *Reconciler) readSnapshots(ctx context.Context, config *v1alpha1.KVMConfig, w *world) error {
	if config.Spec.Etcd == nil {
		return nil
	}
	var err error
	if w.restores, err = r.jobs(ctx, config, etcdrestore.Name); err != nil {
		return err
	}
	found := &batchv1.CronJob{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace(config.Spec.Cluster.ID), Name: key.EtcdSnapshotName}, found)
	if err == nil {
		w.snapshots = found
	}
	return client.IgnoreNotFound(err)
}

// complete creates a snapshot from what was read. It creates missing keys and certificates, so that handlers stay pure;
// they count once their Secret exists.
func (r *Reconciler) complete(config *v1alpha1.KVMConfig, w world) (*state.Cluster, error) {
	s := &state.Cluster{
		Config: state.WithDefaults(config), Settings: r.Settings, Volumes: w.volumes,
		Components: versions.Components(w.release), Nodes: state.NewNodes(config.Spec), Now: r.Clock.Now(),
	}
	if w.hold == "" {
		w.hold = state.HoldOf(&w.namespace, config, nil)
	}
	if s.LookAtNamespace(&w.namespace, w.hold); w.hold == state.HoldForeign {
		w = w.outside()
	}
	if config.DeletionTimestamp == nil {
		if err := r.completeSecrets(s, w); err != nil {
			return nil, err
		}
	}
	gone := observe.Attach(s, w.Objects)
	resolveVersions(s, w)
	s.LookAtRestore(&w.namespace, w.restores, w.Pods)
	s.SnapshotJob = w.snapshots
	s.SnapshotFailed = meta.IsStatusConditionFalse(config.Status.Conditions, ConditionSnapshots)
	s.SnapshotHangs = past(endsBy(s.SnapshotJob), r.Clock.Now())
	if due := beginsBy(s.SnapshotJob); past(due, r.Clock.Now()) {
		s.SnapshotMissed = due.Add(-snapshotGrace)
	}
	s.Founders = state.FoundersOf(&w.namespace, s.Config.Status.Etcd, s.Nodes, gone, s.Restore)
	if r.Workloads != nil && config.DeletionTimestamp == nil {
		s.Etcd = r.Workloads.members(s, gone)
	}
	s.LookAtRetiring(gone)
	s.LookAtRetired(gone, w.retirements)
	s.Ingresses = w.ingresses
	s.MasterService, s.WorkerService, s.PublishedService = existing(&w.services.Master), existing(&w.services.Worker), existing(&w.services.API)
	if r.Workloads != nil && config.DeletionTimestamp == nil {
		s.Workload = r.Workloads.look(s, w.services.Master.Spec.ClusterIP)
	}
	for i, n := range s.Nodes {
		s.Nodes[i].Late = past(n.LateAt(), r.Clock.Now())
	}
	s.LookAtFounding(&w.namespace, gone, w.held)
	s.BootDataErr = r.decideRollout(s)
	return s, nil
}

func (r *Reconciler) completeSecrets(s *state.Cluster, w world) error {
	requests := state.CertificateRequests(s.Config, s.Settings)
	found := state.ReadSecrets(w.secrets, s.Config, s.Settings.AdoptFrom, requests)
	// Nodes without the condition may be those of giantswarm/kvm-operator, whose keys still have to be handed over.
	if len(w.Deployments) > 0 && meta.FindStatusCondition(s.Config.Status.Conditions, ConditionCertificates) != nil {
		found.Lose(s.ID(), s.Config.Namespace, requests)
	}
	s.KubeconfigOf = kubeconfigOf(s, w.secrets)
	s.Adopted, s.Keys, s.KeysErr, s.Stored = found.Adopted, found.Keys, found.KeysErr, found.Pairs
	for _, name := range state.RandomKeys {
		if !found.NeedsKey(name) {
			continue
		}
		value, err := r.NewKey(name)
		if err != nil {
			return microerror.Mask(err)
		}
		s.Keys[name] = value
	}
	if seed, ok := s.Keys[state.KeyBootstrapToken]; ok {
		s.Tokens = joining.TokensAt(seed, s.Now)
	}
	if r.Vault != nil && !s.OwnsNamespace {
		// Nothing can be stored before the namespace exists, so Vault does not issue certificates that would be lost.
		s.Certificates, s.CertificatesErr = found.Pairs, errNoNamespace
		return nil
	}
	requests = found.Requests(requests)
	complete, err := pki.Complete(found.Pairs, requests, r.Issuer, r.Clock.Now(), r.doubt())
	s.Certificates, s.CertificatesErr = complete.Set, errors.Join(found.PairsErr, err)
	s.Terms = state.Terms{
		Renewed: complete.Renewed, Versions: found.Versions, Generations: found.Generations, Next: complete.Next, Failed: complete.Failed,
		Successor: func(name string) (pki.KeyPair, error) { return pki.Successor(name, requests, r.Issuer) },
	}
	return nil
}

// kubeconfigOf returns the group of the stored administrator kubeconfig; nil if there is none.
func kubeconfigOf(s *state.Cluster, secrets []corev1.Secret) *string {
	at := client.ObjectKey{Namespace: s.Namespace(), Name: key.KubeconfigName(s.ID())}
	i := slices.IndexFunc(secrets, func(secret corev1.Secret) bool { return client.ObjectKeyFromObject(&secret) == at })
	if i < 0 {
		return nil
	}
	return new(secrets[i].Annotations[key.AnnotationAdministrators])
}

// errNoNamespace: certificates are issued only for a cluster whose namespace exists and belongs to it.
var errNoNamespace = errors.New("the namespace of the cluster does not exist yet")

// decideRollout adds to every node its hash and its readiness, and decides which nodes may be replaced. Without boot
// data no node is outdated, because the current hash is not known.
func (r *Reconciler) decideRollout(s *state.Cluster) error {
	var nodes []rolling.Node
	var failed error
	answered := answers(s)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		r.readiness(s, n, answered)
		if failed == nil {
			failed = r.renderNode(s, n)
		}
		if s.Holds(*n) && n.Deployment != nil {
			continue // it is not rolled out
		}
		nodes = append(nodes, rolling.Node{
			ID: n.ID, Master: n.Role == key.RoleMaster, Exists: n.Deployment != nil, Outdated: n.Outdated(), Ready: n.Ready && !silent(s, *n),
		})
	}
	limits := rolling.Limits{Lost: r.lost(s, rolling.Minority(nodes))}
	if failed != nil {
		return failed
	}
	if rollout := s.Config.Spec.Rollout; rollout != nil {
		limits.MaxUnavailable, limits.Paused = int(rollout.MaxUnavailable), rollout.Paused
	}
	limits.Blind = r.Workloads != nil && !s.Workload.Connected
	s.Rollout = rolling.Decide(nodes, limits)
	return nil
}

// lost returns whether the rollout no longer waits for masters without a majority, and records in the status since when
// there is no majority. If etcd was never founded it does not wait, because there is nothing that could recover.
func (r *Reconciler) lost(s *state.Cluster, minority bool) bool {
	since := s.Config.Status.MinoritySince
	switch now := metav1.NewTime(r.Clock.Now()); {
	case !minority:
		since = nil
	case since == nil:
		since = &now
	}
	s.MinoritySince = since
	return minority && (!s.Founded() || !r.Clock.Now().Before(s.LostAt()))
}

// renderNode renders a node's boot data, and computes the hash of the boot data and the pod.
func (r *Reconciler) renderNode(s *state.Cluster, n *state.Node) error {
	err := errors.Join(s.VersionsErr, s.CertificatesErr, s.KeysErr)
	if err != nil {
		return err
	}
	if s.Index(n.ID) == 0 {
		return errNoIndex
	}
	if n.BootData, err = r.renderer.Render(s.BootParams(*n)); err != nil {
		return problem.Newf("BootDataInvalid", "boot data of node %s: %s", n.ID, err)
	}
	n.Hash, err = nodepod.Hash(s, *n, n.BootData.Hash)
	return microerror.Mask(err)
}

// errNoIndex: boot data contains the node's index, so it is not rendered before the index is stored.
var errNoIndex = errors.New("the node has no index yet")
