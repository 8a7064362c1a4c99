package drainer

import (
	"context"
	"slices"
	"time"

	"github.com/giantswarm/microerror"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/drain"
	"github.com/kvm-operator/kvm-operator/pkg/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/joining"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

// look finds out what has to be known of a machine. config is nil when the KVMConfig is gone; pods says how the other pods are.
func (r *Reconciler) look(ctx context.Context, pod *corev1.Pod, config *v1alpha1.KVMConfig, pods client.Reader) (drain.Machine, error) {
	m := drain.Machine{
		Stopped: stopped(pod), LetGo: letGo(pod), ClusterGone: config == nil || config.DeletionTimestamp != nil,
		HostShutsDown: r.hostGoes(ctx, pod), Watched: r.Pool != nil, Master: pod.Labels[key.LabelApp] == key.RoleMaster,
		Serves: serves(pod),
	}
	if m.Stopped || m.LetGo != "" || m.ClusterGone || m.HostShutsDown {
		return m, nil
	}
	var err error
	if m.Restoring, err = r.restoring(ctx, pod); err != nil || m.Restoring {
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

// inside is the way into a workload cluster: what reads there, and the clock by which its objects are.
type inside struct {
	client.Reader
	clock clock.PassiveClock
}

// connect notes what is known of the way to the workload cluster, and the Node of the pod. It returns how to read there, and which Nodes
// there are, and whether they are Ready; nothing while it is not reached.
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

// restoring says whether a master is stopped for a restore. That it is said so in the cache may be long ago, and a master that is let go
// for nothing may be the one that etcd needs, so the API server is asked then.
func (r *Reconciler) restoring(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if pod.Labels[key.LabelApp] != key.RoleMaster {
		return false, nil
	}
	name := client.ObjectKey{Namespace: pod.Namespace, Name: key.DeploymentName(key.RoleMaster, pod.Labels[key.LabelNode])}
	for _, reader := range []client.Reader{r.Client, r.Live} {
		d := &appsv1.Deployment{}
		if err := reader.Get(ctx, name, d); err != nil {
			return false, microerror.Mask(client.IgnoreNotFound(err))
		}
		if d.Annotations[key.AnnotationEtcdHalted] == "" {
			return false, nil
		}
	}
	return true, nil
}

// podsOn asks for the pods of the Node. A cluster that does not tell is one that does not answer: the time that the machine is
// held for goes on.
func podsOn(ctx context.Context, way inside, m *drain.Machine) {
	ctx, cancel := context.WithTimeout(ctx, insideTimeout)
	defer cancel()
	var pods corev1.PodList
	if err := way.List(ctx, &pods, client.MatchingFields{"spec.nodeName": m.Node.Name}); err != nil {
		m.Connected, m.Node, m.Trouble = false, nil, joining.Steady(err.Error())
		return
	}
	m.Pods, m.Now = pods.Items, way.clock.Now()
}

// member says whether the machine may run a member of etcd that counts. The Deployment of a master that is not in the spec any
// more stays until its member has been taken out; somebody else may delete it before.
func (r *Reconciler) member(ctx context.Context, pod *corev1.Pod, config *v1alpha1.KVMConfig) (bool, error) {
	id := pod.Labels[key.LabelNode]
	if pod.Labels[key.LabelApp] != key.RoleMaster {
		return false, nil
	}
	if slices.ContainsFunc(config.Spec.Cluster.Masters, func(n v1alpha1.Node) bool { return n.ID == id }) {
		return true, nil
	}
	d := &appsv1.Deployment{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: key.DeploymentName(key.RoleMaster, id)}, d)
	if client.IgnoreNotFound(err) != nil {
		return false, microerror.Mask(err)
	}
	if apierrors.IsNotFound(err) || d.DeletionTimestamp != nil {
		vote := r.vote(config, id)
		return vote == etcd.VoteGiven || vote == etcd.VoteMissing || vote == etcd.VoteAwaited, nil
	}
	return true, nil
}

// countMasters counts the masters of the cluster by node, and those besides this pod's that are Ready and stay. It is about machines
// that run a member of etcd only.
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
	vote := func(nodeID string) etcd.Vote { return r.vote(config, nodeID) }
	goes := func(other *corev1.Pod) bool { return leaving(other) || r.hostGoes(ctx, other) }
	m.Masters, m.Healthy = count(pod, config.Spec.Cluster.Masters, pods.Items, ready, vote, goes)
	m.Votes = mayVote(vote(pod.Labels[key.LabelNode]), m.Serves)
	return nil
}

// mayVote says whether a master has to be taken for a part of etcd although its Node is not Ready: one whose kubelet is silent may have a member
// that is well. Where no member can be asked, what its machine says counts: it may be one of those that keep the majority.
func mayVote(own etcd.Vote, serves bool) bool {
	return own == etcd.VoteGiven || own == etcd.VoteAwaited || own == etcd.VoteUnknown && serves
}

// vote is what is known of the vote of a master's member.
func (r *Reconciler) vote(config *v1alpha1.KVMConfig, nodeID string) etcd.Vote {
	if r.Etcd == nil {
		return etcd.VoteUnknown
	}
	return r.Etcd.Vote(client.ObjectKeyFromObject(config), pki.EtcdMember(nodeID))
}

// count counts the masters by node, and those besides this pod's that are Ready and stay and whose members have a vote in etcd and answer, as
// far as that is known. One that joins has all of a master and no vote: it is no part of the majority yet. One that has left the spec and
// lost its vote is no master any more: its pod may stay for ever on a host that is dead. Of a master whose Node is not Ready itself, what hangs
// on it is etcd: the word of the other members is enough, for several Nodes may be ill of one cause that only new machines mend.
func count(
	pod *corev1.Pod, spec []v1alpha1.Node, pods []corev1.Pod, ready map[string]bool,
	vote func(nodeID string) etcd.Vote, goes func(*corev1.Pod) bool,
) (masters, healthy int) {
	all, well := map[string]bool{pod.Labels[key.LabelNode]: true}, map[string]bool{}
	nodeReady, known := ready[pod.Name]
	ill := known && !nodeReady
	for _, n := range spec {
		all[n.ID] = true
	}
	for i := range pods {
		other := &pods[i]
		id := other.Labels[key.LabelNode]
		if other.Labels[key.LabelApp] != key.RoleMaster || id == pod.Labels[key.LabelNode] || stopped(other) {
			continue
		}
		v := vote(id)
		if v != etcd.VoteNone {
			all[id] = true
		}
		if (v == etcd.VoteGiven || v == etcd.VoteUnknown) && drain.Stays(pod.Name, certain(pod), drain.Master{
			Pod: other.Name, Ready: isWell(other, ready) || ill && v == etcd.VoteGiven, Deleted: other.DeletionTimestamp != nil, Leaving: goes(other),
		}) {
			well[id] = true
		}
	}
	return len(all), len(well)
}

// times are how long the machine has been held, how long pods may make it wait, and how long it can be held: whoever deletes a pod may
// give it less time than it asks for, some of which is kept for powering down.
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

// stopped says that nothing of the pod runs or will run. A grace period of zero says so too: the kubelet sets it when all
// containers have ended, and whoever deletes a pod by force. That its container has ended does not: the kubelet may have begun it once more before
// it heard of the deletion, and says so later.
func stopped(pod *corev1.Pod) bool {
	return joining.Ended(pod) || pod.DeletionTimestamp != nil && (pod.Spec.NodeName == "" || pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0)
}

// serves says that the runner of a pod finds its machine well. The pod is Ready only with its Node.
func serves(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.ContainersReady && c.Status == corev1.ConditionTrue
	})
}

// isWell says that a master serves, as far as its pod and its Node know; ready has the Nodes that are seen. Of a pod whose host is dead, only
// its readiness is taken back, what its containers said last stands.
func isWell(pod *corev1.Pod, ready map[string]bool) bool {
	nodeReady, known := ready[pod.Name]
	return cluster.PodReady(pod) && (nodeReady || !known)
}

// endedByHost says that a kubelet ends the pod by itself, for its host goes down or has no memory left.
func endedByHost(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonTerminationByKubelet {
			return true
		}
	}
	return false
}

// leaving says that it was announced that the machine of a pod is let go, or that its host ends it.
func leaving(pod *corev1.Pod) bool {
	return drainedCondition(pod).Reason == string(drain.LettingGo) || certain(pod) || endedByHost(pod)
}

// certain says that the machine of a pod has been let go, or may have been.
func certain(pod *corev1.Pod) bool {
	switch c := drainedCondition(pod); drain.Reason(c.Reason) {
	case drain.Releasing, drain.ReleaseFailed:
		return true
	default:
		return c.Status == corev1.ConditionTrue
	}
}

func drainedCondition(pod *corev1.Pod) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == key.ConditionDrained {
			return c
		}
	}
	return corev1.PodCondition{}
}

// letGo is the reason for which the machine has been let go, as its pod says.
func letGo(pod *corev1.Pod) drain.Reason {
	if c := drainedCondition(pod); c.Status == corev1.ConditionTrue {
		return drain.Reason(c.Reason)
	}
	return ""
}
