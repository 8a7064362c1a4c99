package drainer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/giantswarm/microerror"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/plan"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// Leaver is a node pod that is about to end, with the KVMConfig of its cluster; nil if that is gone.
type Leaver struct {
	*corev1.Pod

	config *v1alpha1.KVMConfig
	// unowned means that the namespace names no owner.
	unowned bool
}

// Gather reads what the chain decides on, from caches and, if the pod is a master that is about to be released, from
// the API server and from etcd.
func (r *Reconciler) Gather(ctx context.Context, l Leaver) (*drain.State, error) {
	s := &drain.State{Pod: l.Pod, Config: l.config, Unowned: l.unowned}
	if l.unowned {
		return s, nil
	}
	var err error
	if s.Machine, err = r.look(ctx, s.Pod, s.Config, r.Client); err != nil {
		return nil, err
	}
	if drain.Verified(s.Pod, s.Machine) {
		if err := r.verify(ctx, s); err != nil {
			return nil, err
		}
	}
	var list discoveryv1.EndpointSliceList
	err = r.Client.List(ctx, &list, client.InNamespace(s.Pod.Namespace), client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy)
	s.Slices = list.Items
	return s, microerror.Mask(err)
}

// verify reads the state from the API server, after the members of etcd were asked.
func (r *Reconciler) verify(ctx context.Context, s *drain.State) error {
	if !r.askEtcd(ctx, s.Config) {
		return errUnasked
	}
	s.Pod = s.Pod.DeepCopy()
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(s.Pod), s.Pod)
	if err == nil {
		s.Machine, err = r.look(ctx, s.Pod, s.Config, r.Live)
	}
	return microerror.Mask(err)
}

// askEtcd queries the state of the members because what is known of them may be a minute old. It returns false if they
// were not queried in time: their list may be changing just now, which takes longer than a reconcile may take.
func (r *Reconciler) askEtcd(ctx context.Context, config *v1alpha1.KVMConfig) bool {
	if r.Etcd == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return r.Etcd.Ask(ctx, client.ObjectKeyFromObject(config))
}

// errUnasked makes the controller retry.
var errUnasked = errors.New("the members of etcd were not asked in time; the operator tries again")

// look collects the state of a machine. config is nil if the KVMConfig is gone; pods is the reader with which the other
// pods are read.
func (r *Reconciler) look(ctx context.Context, pod *corev1.Pod, config *v1alpha1.KVMConfig, pods client.Reader) (drain.Machine, error) {
	m := drain.Machine{
		Stopped: drain.Stopped(pod), Released: drain.ReleasedFor(pod), ClusterGone: config == nil || config.DeletionTimestamp != nil,
		HostShutsDown: r.hostGoes(ctx, pod), HostStays: r.hostStays(ctx, pod), Watched: r.Pool != nil, Master: pod.Labels[key.LabelApp] == key.RoleMaster,
		Serves: drain.Serves(pod),
	}
	if m.Stopped || m.Released != "" || m.ClusterGone || m.HostShutsDown {
		return m, nil
	}
	var err error
	if m.Restoring, err = r.restoring(ctx, pod, config); err != nil || m.Restoring {
		return m, err
	}
	var namespace corev1.Namespace
	if err := r.Client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, &namespace); client.IgnoreNotFound(err) != nil {
		return m, microerror.Mask(err)
	}
	m.NamespaceGoes = namespace.DeletionTimestamp != nil
	m.Waited, m.Timeout, m.Grace = r.times(pod, config)
	way, ready := r.connect(pod, config, &m)
	if err := r.countMasters(ctx, pod, config, pods, ready, &m); err != nil {
		return m, err
	}
	if m.Node != nil {
		podsOn(ctx, way, &m)
	}
	return m, nil
}

// inside is the access to a workload cluster: a reader, and the clock that its objects' times are from.
type inside struct {
	client.Reader
	clock clock.PassiveClock
}

// connect records in m what is known of the connection to the workload cluster, and the Node of the pod. It returns the
// reader of the cluster and whether its Nodes are Ready, by name; nothing while the cluster cannot be reached.
func (r *Reconciler) connect(pod *corev1.Pod, config *v1alpha1.KVMConfig, m *drain.Machine) (way inside, ready map[string]bool) {
	if !m.Watched {
		return way, nil
	}
	seen := r.Pool.Get(client.ObjectKeyFromObject(config))
	if seen == nil {
		return way, nil
	}
	nodes, connected := seen.Nodes()
	live, alive := seen.Live()
	by, known := seen.Clock()
	if !connected || !alive || !known {
		m.Silent, m.Trouble = seen.Silent(), seen.State().Message
		return way, nil
	}
	m.Connected = true
	ready = map[string]bool{}
	for i := range nodes {
		ready[nodes[i].Name] = joining.Ready(&nodes[i])
		if nodes[i].Name == pod.Name {
			m.Node = &nodes[i]
		}
	}
	return inside{live, by}, ready
}

// restoring returns whether a master is stopped for a restore. The cache may be out of date, and a master that is
// released by mistake may be the one that etcd needs, so the API server is read as well if the cache says so.
func (r *Reconciler) restoring(ctx context.Context, pod *corev1.Pod, config *v1alpha1.KVMConfig) (bool, error) {
	if pod.Labels[key.LabelApp] != key.RoleMaster {
		return false, nil
	}
	for _, reader := range []client.Reader{r.Client, r.Live} {
		if stopped, err := stopped(ctx, reader, pod, config); err != nil || !stopped {
			return false, err
		}
	}
	return true, nil
}

// stopped returns whether the Deployment of a master says that the master is stopped for a restore. A Deployment that is
// missing or being deleted cannot say so. Masters are stopped together, so those of the others count then: none of them
// starts before this machine is down.
func stopped(ctx context.Context, from client.Reader, pod *corev1.Pod, config *v1alpha1.KVMConfig) (bool, error) {
	own := pod.Labels[key.LabelNode]
	there, halted, err := halt(ctx, from, pod.Namespace, own)
	if err != nil || there {
		return halted, err
	}
	stopped := false
	for _, n := range config.Spec.Cluster.Masters {
		there, halted, err := halt(ctx, from, pod.Namespace, n.ID)
		if err != nil || there && !halted {
			return false, err
		}
		stopped = stopped || halted
	}
	return stopped, nil
}

// halt returns whether a master has a Deployment that stays, and whether that says that the master is stopped.
func halt(ctx context.Context, from client.Reader, namespace, nodeID string) (there, halted bool, err error) {
	d := &appsv1.Deployment{}
	if err := from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: key.DeploymentName(key.RoleMaster, nodeID)}, d); err != nil {
		return false, false, microerror.Mask(client.IgnoreNotFound(err))
	}
	there = d.DeletionTimestamp == nil
	return there, there && d.Annotations[key.AnnotationEtcdHalted] != "", nil
}

// podsOn lists the pods of the Node. If the list fails, the cluster counts as one that does not respond: the time for
// which the machine is held continues.
func podsOn(ctx context.Context, way inside, m *drain.Machine) {
	ctx, cancel := context.WithTimeout(ctx, insideTimeout)
	defer cancel()
	var pods corev1.PodList
	if err := way.List(ctx, &pods, client.MatchingFields{"spec.nodeName": m.Node.Name}); err != nil {
		m.Connected, m.Node, m.Trouble = false, nil, text.Steady(err.Error())
		return
	}
	m.Pods, m.Now = pods.Items, way.clock.Now()
}

// member returns whether the machine may run a member of etcd that counts. The Deployment of a master that is no longer
// in the spec stays until its member has been removed; another party may delete it before that. A master of the spec
// whose Deployment goes and that is not in the list of members runs with the data of a member that was removed: nothing
// depends on it, and its next member starts only once this machine is gone.
func (r *Reconciler) member(ctx context.Context, pod *corev1.Pod, config *v1alpha1.KVMConfig) (bool, error) {
	id := pod.Labels[key.LabelNode]
	if pod.Labels[key.LabelApp] != key.RoleMaster {
		return false, nil
	}
	d := &appsv1.Deployment{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: key.DeploymentName(key.RoleMaster, id)}, d)
	if client.IgnoreNotFound(err) != nil {
		return false, microerror.Mask(err)
	}
	if err == nil && d.DeletionTimestamp == nil {
		return true, nil
	}
	vote, _ := r.vote(config, id)
	if slices.ContainsFunc(config.Spec.Cluster.Masters, func(n v1alpha1.Node) bool { return n.ID == id }) {
		return vote != etcd.VoteNone, nil
	}
	return vote == etcd.VoteGiven || vote == etcd.VoteMissing || vote == etcd.VoteAwaited, nil
}

// countMasters counts the masters of the cluster by node, and the masters other than this pod's that are Ready and
// stay. It counts only machines that run a member of etcd.
func (r *Reconciler) countMasters(
	ctx context.Context, pod *corev1.Pod, config *v1alpha1.KVMConfig, from client.Reader, ready map[string]bool, m *drain.Machine,
) error {
	if member, err := r.member(ctx, pod, config); err != nil || !member {
		return err
	}
	var pods corev1.PodList
	if err := from.List(ctx, &pods, client.InNamespace(pod.Namespace)); err != nil {
		return microerror.Mask(err)
	}
	masters := drain.Masters{
		Pods: pods.Items, Ready: ready,
		Vote:    func(nodeID string) (etcd.Vote, int) { return r.vote(config, nodeID) },
		Leaving: func(other *corev1.Pod) bool { return drain.Leaving(other) || r.hostGoes(ctx, other) },
	}
	for _, n := range config.Spec.Cluster.Masters {
		masters.Spec = append(masters.Spec, n.ID)
	}
	m.Masters, m.Healthy = masters.Count(pod)
	own, _ := r.vote(config, pod.Labels[key.LabelNode])
	m.Votes = drain.MayVote(own, m.Serves)
	return nil
}

// vote returns what is known of the vote of a master's member, and of the number of votes.
func (r *Reconciler) vote(config *v1alpha1.KVMConfig, nodeID string) (vote etcd.Vote, voters int) {
	if r.Etcd == nil {
		return etcd.VoteUnknown, 0
	}
	return r.Etcd.Vote(client.ObjectKeyFromObject(config), pki.EtcdMember(nodeID))
}

// times returns how long the machine has been held, how long it may wait for pods, and how long it can be held: a pod
// may be deleted with a shorter grace period than its own, and a part of it is reserved for the shutdown.
func (r *Reconciler) times(pod *corev1.Pod, config *v1alpha1.KVMConfig) (waited, timeout, grace time.Duration) {
	timeout = r.Timeout
	if config.Spec.Drain != nil && config.Spec.Drain.Timeout != nil {
		timeout = config.Spec.Drain.Timeout.Duration
	}
	if pod.DeletionTimestamp == nil {
		return 0, timeout, 0
	}
	given := nodepod.GracePeriod
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil {
		given = time.Duration(*seconds) * time.Second
	}
	return r.Clock.Since(pod.DeletionTimestamp.Add(-given)), timeout, max(given-nodepod.PowerdownPeriod, time.Nanosecond)
}

// Gather reads the machines of a cluster, only from caches, and what is known of its etcd.
func (r *Endpoints) Gather(ctx context.Context, config *v1alpha1.KVMConfig) (*state.Cluster, error) {
	namespace, hold, err := r.Reader().Namespace(ctx, config)
	if err != nil {
		return nil, err
	}
	o := plan.Observed{Config: config, Settings: r.Settings, Namespace: *namespace, Hold: hold, Connects: r.Workloads != nil, OnlyMachines: true}
	if o.Connects { // without them, it would never be known that etcd was founded
		o.Config, _ = state.HoldFounders(config, namespace, hold)
	}
	if r.Members != nil {
		o.Etcd = r.Members(client.ObjectKeyFromObject(config))
	}
	if state.OwnsNamespace(config, hold) {
		if o.Objects, err = r.Reader().Objects(ctx, o.Config); err != nil {
			return nil, err
		}
	}
	return plan.Machines(o, r.Clock.Now()), nil
}
