package cluster

import (
	"context"
	"errors"
	"slices"

	"github.com/giantswarm/microerror"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/apply"
	snapshot "github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/joining"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
	"github.com/kvm-operator/kvm-operator/pkg/problem"
	"github.com/kvm-operator/kvm-operator/pkg/rolling"
	"github.com/kvm-operator/kvm-operator/pkg/versions"
	"github.com/kvm-operator/kvm-operator/resources/etcdrestore"
)

// IndexCluster is the name of the cache index over the label with the cluster's id.
const IndexCluster = "cluster"

// world is what gathering reads, before anything is made of it.
type world struct {
	release     *releasev1alpha1.Release
	secrets     []corev1.Secret
	pods        []corev1.Pod
	deployments map[string]*appsv1.Deployment
	// held are masters that only the copy of the spec has, see snapshot.HoldFounders.
	held []string
	// retired are Deployments of masters that are not in the spec.
	retired   []appsv1.Deployment
	volumes   []corev1.PersistentVolume
	namespace corev1.Namespace
	// hold says whose the namespace is.
	hold      snapshot.Hold
	services  Services
	ingresses []networkingv1.Ingress
	// restores are the Jobs of a restore, and snapshots is what takes snapshots of etcd.
	restores  []batchv1.Job
	snapshots *batchv1.CronJob
	// retirements are the Jobs on data of etcd that masters have left on hosts.
	retirements []batchv1.Job
}

// gather reads everything that the handlers decide on, from caches only.
func (r *Reconciler) gather(ctx context.Context, config *v1alpha1.KVMConfig) (*snapshot.Snapshot, error) {
	namespace, hold, err := r.readNamespace(ctx, config)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	var held []string
	if r.Workloads != nil { // else nobody would ever see that etcd has begun
		config, held = snapshot.HoldFounders(config, namespace, hold)
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
	var pods corev1.PodList
	var volumes corev1.PersistentVolumeList
	err := errors.Join(
		readRelease(ctx, r.Client, config, &w),
		r.readSecrets(ctx, config, &w),
		r.readDeployments(ctx, config, &w),
		r.readSnapshots(ctx, config, &w),
		r.readRetirements(ctx, config, &w),
		r.readIngresses(ctx, config, &w),
		r.Client.List(ctx, &pods, client.InNamespace(key.Namespace(id)), client.MatchingFields{IndexCluster: id}),
		r.Client.List(ctx, &volumes),
		w.services.read(ctx, r.Client, id),
	)
	w.pods, w.volumes = pods.Items, volumes.Items
	return w, microerror.Mask(err)
}

// readSecrets lists the Secrets labelled with the cluster, in the places that count. A list that waited until the cache has seen the operator's own
// writes would wait for those of all clusters, so what the list lacks is asked for by name.
func (r *Reconciler) readSecrets(ctx context.Context, config *v1alpha1.KVMConfig, w *world) error {
	cluster := config.Spec.Cluster
	for _, namespace := range r.secretPlaces(config) {
		var list corev1.SecretList
		err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{IndexCluster: cluster.ID}, client.DisableReadYourWritesConsistency)
		if err != nil {
			return err
		}
		w.secrets = append(w.secrets, list.Items...)
	}
	names := slices.Clone(snapshot.RandomKeys)
	for _, request := range snapshot.CertificateRequests(snapshot.WithDefaults(config), r.Settings) {
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

// readSnapshots reads what takes and restores snapshots of etcd. That a Job is missing in the list because it is seconds old does no
// harm: it has not ended yet.
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

// readDeployments asks for them by name, for the same reason.
func (r *Reconciler) readDeployments(ctx context.Context, config *v1alpha1.KVMConfig, w *world) error {
	w.deployments = map[string]*appsv1.Deployment{}
	var err error
	if w.retired, err = r.retired(ctx, config); err != nil {
		return err
	}
	for _, n := range snapshot.NewNodes(config.Spec) {
		name := key.DeploymentName(n.Role, n.ID)
		d := &appsv1.Deployment{}
		at := client.ObjectKey{Namespace: key.Namespace(config.Spec.Cluster.ID), Name: name}
		err := r.Client.Get(ctx, at, d)
		if apierrors.IsNotFound(err) && hadPod(config, n) {
			// Somebody may have taken away the label by which caches see it.
			err = r.Live.Get(ctx, at, d)
		}
		if err == nil {
			w.deployments[name] = d
		} else if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// hadPod says that the status knows a pod of the node.
func hadPod(config *v1alpha1.KVMConfig, n snapshot.Node) bool {
	return slices.ContainsFunc(config.Status.Nodes, func(st v1alpha1.NodeStatus) bool { return st.ID == n.ID && st.Role == n.Role && st.Pod != "" })
}

// retired lists the masters' Deployments that the spec does not name. One that is missing in the list because it is seconds old
// has no member yet.
func (r *Reconciler) retired(ctx context.Context, config *v1alpha1.KVMConfig) ([]appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	owner := key.OwnerKVMConfig(config, "deployment").String()
	err := r.Client.List(ctx, &list, client.InNamespace(key.Namespace(config.Spec.Cluster.ID)), client.MatchingFields{apply.IndexOwner: owner},
		client.DisableReadYourWritesConsistency)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(d appsv1.Deployment) bool {
		named := func(n v1alpha1.Node) bool { return n.ID == d.Labels[key.LabelNode] }
		return d.Labels[key.LabelApp] != key.RoleMaster || slices.ContainsFunc(config.Spec.Cluster.Masters, named)
	}), nil
}

// complete makes a snapshot of what was read. Keys and certificates that are missing are made here, so that handlers stay
// pure; they count once their Secret exists.
func (r *Reconciler) complete(config *v1alpha1.KVMConfig, w world) (*snapshot.Snapshot, error) {
	s := &snapshot.Snapshot{
		Config: snapshot.WithDefaults(config), Settings: r.Settings, Volumes: w.volumes,
		Components: versions.Components(w.release), Nodes: snapshot.NewNodes(config.Spec), Now: r.Clock.Now(),
	}
	if w.hold == "" {
		w.hold = snapshot.HoldOf(&w.namespace, config, nil)
	}
	if s.LookAtNamespace(&w.namespace, w.hold); w.hold == snapshot.HoldForeign {
		w = w.outside()
	}
	if config.DeletionTimestamp == nil {
		if err := r.completeSecrets(s, w); err != nil {
			return nil, err
		}
	}
	attach(s, w.pods, w.deployments)
	resolveVersions(s, w)
	s.LookAtRestore(&w.namespace, w.restores, w.pods)
	s.SnapshotJob = w.snapshots
	s.SnapshotFailed = meta.IsStatusConditionFalse(config.Status.Conditions, conditionTypes["etcdsnapshot"])
	s.SnapshotHangs = past(endsBy(s.SnapshotJob), r.Clock.Now())
	if due := beginsBy(s.SnapshotJob); past(due, r.Clock.Now()) {
		s.SnapshotMissed = due.Add(-snapshotGrace)
	}
	gone := retired(s, w)
	s.Founders = snapshot.FoundersOf(&w.namespace, s.Config.Status.Etcd, s.Nodes, gone, s.Restore)
	if r.Workloads != nil && config.DeletionTimestamp == nil {
		s.Etcd = r.Workloads.members(s, gone)
	}
	s.Retiring = slices.DeleteFunc(slices.Clone(gone), func(n snapshot.Node) bool { return !s.Retires(n) })
	s.Leaving = leaving(s.Nodes, w.pods)
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

func (r *Reconciler) completeSecrets(s *snapshot.Snapshot, w world) error {
	requests := snapshot.CertificateRequests(s.Config, s.Settings)
	found := snapshot.ReadSecrets(w.secrets, s.Config, s.Settings.AdoptFrom, requests)
	// Machines alone may be the original's, whose keys are still to be handed over.
	if len(w.deployments) > 0 && meta.FindStatusCondition(s.Config.Status.Conditions, conditionTypes["randomkey"]) != nil {
		found.Lose(s.ID(), s.Config.Namespace, requests)
	}
	s.KubeconfigOf = kubeconfigOf(s, w.secrets)
	s.Adopted, s.Keys, s.KeysErr, s.Stored = found.Adopted, found.Keys, found.KeysErr, found.Pairs
	for _, name := range snapshot.RandomKeys {
		if !found.NeedsKey(name) {
			continue
		}
		value, err := r.NewKey(name)
		if err != nil {
			return microerror.Mask(err)
		}
		s.Keys[name] = value
	}
	if seed, ok := s.Keys[snapshot.KeyBootstrapToken]; ok {
		s.Tokens = joining.TokensAt(seed, s.Now)
	}
	if r.Vault != nil && !s.OwnsNamespace {
		// Nothing is stored before there is a namespace, and Vault is not asked for what nobody keeps.
		s.Certificates, s.CertificatesErr = found.Pairs, errNoNamespace
		return nil
	}
	requests = found.Requests(requests)
	complete, err := pki.Complete(found.Pairs, requests, r.Issuer, r.Clock.Now(), r.doubt())
	s.Certificates, s.CertificatesErr = complete.Set, errors.Join(found.PairsErr, err)
	s.Terms = snapshot.Terms{
		Renewed: complete.Renewed, Versions: found.Versions, Generations: found.Generations, Next: complete.Next, Failed: complete.Failed,
		Successor: func(name string) (pki.KeyPair, error) { return pki.Successor(name, requests, r.Issuer) },
	}
	return nil
}

// kubeconfigOf is the group of the stored kubeconfig of the administrator; nil when there is none.
func kubeconfigOf(s *snapshot.Snapshot, secrets []corev1.Secret) *string {
	at := client.ObjectKey{Namespace: s.Namespace(), Name: key.KubeconfigName(s.ID())}
	i := slices.IndexFunc(secrets, func(secret corev1.Secret) bool { return client.ObjectKeyFromObject(&secret) == at })
	if i < 0 {
		return nil
	}
	return new(secrets[i].Annotations[key.AnnotationAdministrators])
}

// errNoNamespace: certificates are made for a cluster whose id is nobody else's.
var errNoNamespace = errors.New("the namespace of the cluster does not exist yet")

// attach gives every node its Deployment, its pods and where its data is.
func attach(s *snapshot.Snapshot, pods []corev1.Pod, deployments map[string]*appsv1.Deployment) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if d := deployments[key.DeploymentName(n.Role, n.ID)]; d != nil && ours(s, d) {
			n.Deployment = d
		}
		n.Pods = snapshot.PodsOf(pods, *n)
		findData(s, n)
	}
}

// leaving are the pods that belong to none of the nodes.
func leaving(nodes []snapshot.Node, pods []corev1.Pod) []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool {
		return p.Labels[key.LabelApp] == snapshot.AppEtcdRestore || slices.ContainsFunc(nodes, func(n snapshot.Node) bool {
			return p.Labels[key.LabelNode] == n.ID && p.Labels[key.LabelApp] == n.Role
		})
	})
}

// ours says whether a Deployment is the cluster's, or one of the original's that is about to be adopted: were that not
// known here, all machines would be taken for missing and replaced at once.
func ours(s *snapshot.Snapshot, d *appsv1.Deployment) bool {
	return s.Owner("deployment").Names(d.Annotations) || !key.HasOwner(d.Annotations) && d.Labels[key.LabelGSCluster] == s.ID()
}

// decideRollout gives every node its hash and its readiness and decides which may be replaced. Without boot data nothing
// is outdated, for nothing is known to be better.
func (r *Reconciler) decideRollout(s *snapshot.Snapshot) error {
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
			continue // it stays as it is
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

// lost says whether masters that have no majority are not waited for any more, and has the status tell since when they have none. Nothing comes
// back where no etcd has run.
func (r *Reconciler) lost(s *snapshot.Snapshot, minority bool) bool {
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

// renderNode makes a node's boot data and, of it and the pod, the hash.
func (r *Reconciler) renderNode(s *snapshot.Snapshot, n *snapshot.Node) error {
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

// errNoIndex: boot data carries the node's index, and nothing is made of it before the index is stored.
var errNoIndex = errors.New("the node has no index yet")
