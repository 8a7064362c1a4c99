package cluster

import (
	"cmp"
	"context"
	"sync"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/workload"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/certificaterequest"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/nodelabel"
)

// Workloads are the connections to workload clusters.
type Workloads struct {
	// Pool keeps the connections.
	Pool *workload.Pool
	// Addresses returns the addresses of a cluster's API, given the address of the Service "master".
	Addresses func(s *state.Cluster, serviceIP string) []string

	// Members manage the members of etcd. EtcdAddresses returns the addresses (host:port) of a cluster's members by
	// their node pods; if it is nil, or returns nil for a cluster, the members are not managed.
	Members       *Members
	EtcdAddresses func(s *state.Cluster) func(pod *corev1.Pod) string

	// turns limit the time of handlers, because the API of a cluster may hang.
	turns *chain.Turns[*state.Cluster]

	mu sync.Mutex
	// queues are those of the controllers that follow workload clusters, once these controllers run.
	queues []queue
	// refusals are why the operator does not use the connection to a cluster.
	refusals map[types.NamespacedName]state.Workload
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// NewWorkloads creates the connections. They change nothing unless the fence is open. scheme and mapper have the
// WorkloadKinds.
func NewWorkloads(scheme *runtime.Scheme, mapper meta.RESTMapper, f *fence.Fence) *Workloads {
	w := &Workloads{EtcdAddresses: memberAddresses, refusals: map[types.NamespacedName]state.Workload{}}
	w.Pool = workload.NewPool(workload.Options{Kinds: managedInside(), Scheme: scheme, Mapper: mapper, Changed: w.changed, Fence: f})
	w.Members = NewMembers(w.changed, f)
	w.turns = chain.NewTurns(func(s *state.Cluster) string { return nameOf(s).String() }, clock.RealClock{})
	return w
}

// WorkloadKinds are the kinds that the controller reads or writes in workload clusters.
func WorkloadKinds() []client.Object {
	return append(managedInside(), &corev1.Node{}, &corev1.Pod{}, &certificatesv1.CertificateSigningRequest{})
}

func managedInside() []client.Object { return addons.Kinds() }

// changed makes the controllers reconcile a cluster. A change before they run is seen when they start.
func (w *Workloads) changed(name types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		q.Add(reconcile.Request{NamespacedName: name})
	}
}

// Source wakes a controller when a workload cluster changes.
func (w *Workloads) Source() source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queues = append(w.queues, q)
		return nil
	})
}

func nameOf(s *state.Cluster) types.NamespacedName { return client.ObjectKeyFromObject(s.Config) }

// follow connects to the cluster, unless it is connected already, and sets the members that its etcd should have. It
// does not wait: the result is observed in a later reconcile. The operator uses the key pair that is stored: one
// that was just issued may never be stored. It returns whether anything begins or ends to be followed.
func (w *Workloads) follow(s *state.Cluster) bool {
	if w == nil || s.Config.DeletionTimestamp != nil {
		return false
	}
	changed := w.followMembers(s)
	pair, refusal := s.Connection()
	switch {
	case s.NamespaceTaken:
		w.Pool.Forget(nameOf(s))
	case refusal == nil || refusal.Reason == state.ReasonNoMaster:
		// A cluster without an address is followed too, because the time without an address counts.
		changed = w.Pool.Get(nameOf(s)) == nil || changed
		w.Pool.Ensure(nameOf(s), workload.Access{
			Addresses: s.Addresses, ServerName: s.APIServerName(), CA: pair.CA, Certificate: pair.Certificate, Key: pair.Key,
		})
	}
	return w.refuse(nameOf(s), refusal) || changed
}

// known returns what is known of a cluster and of the members of its etcd.
func (w *Workloads) known(config *v1alpha1.KVMConfig) (state.Workload, etcd.State) {
	name := client.ObjectKeyFromObject(config)
	return w.Seen(name), w.Members.State(name)
}

// refuse notes why the operator does not use the connection to a cluster, nil when it does. When that changes, it wakes
// the controllers and returns true.
func (w *Workloads) refuse(name types.NamespacedName, refusal *state.Workload) bool {
	w.mu.Lock()
	before := w.refusals[name]
	if refusal == nil {
		delete(w.refusals, name)
	} else {
		w.refusals[name] = *refusal
	}
	w.mu.Unlock()
	changed := refusal == nil && before.Reason != "" || refusal != nil && before.Reason != refusal.Reason
	if changed {
		w.changed(name)
	}
	return changed
}

// refusal returns why the operator does not use the connection to a cluster.
func (w *Workloads) refusal(name types.NamespacedName) (state.Workload, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	refusal, refused := w.refusals[name]
	return refusal, refused
}

// Seen returns what is known of a workload cluster. It does not connect.
func (w *Workloads) Seen(name types.NamespacedName) state.Workload {
	if refusal, refused := w.refusal(name); refused {
		return refusal
	}
	cluster := w.Pool.Get(name)
	if cluster == nil {
		return state.Workload{Reason: string(workload.Connecting)}
	}
	return knownOf(cluster)
}

func knownOf(cluster *workload.Cluster) state.Workload {
	nodes, connected := cluster.Nodes()
	requests, seen := cluster.Requests()
	daemonSets, deployments, listed := cluster.AddOns()
	by, known := cluster.Clock()
	if !connected || !seen || !listed || !known {
		at := cluster.State()
		if at.Phase == workload.Connected { // it is being ended
			at.Phase = workload.Connecting
		}
		return state.Workload{Reason: cmp.Or(string(at.Reason), string(at.Phase)), Message: at.Message}
	}
	return state.Workload{
		Connected: true, Watched: cluster.Watched(), Now: by.Now(), Nodes: nodes, Requests: requests, DaemonSets: daemonSets, Deployments: deployments,
		Administrators: administrators(cluster),
	}
}

// administrators returns the group that is bound to the rights of an administrator, as the cache has it.
func administrators(c *workload.Cluster) string {
	reader, connected := c.Client()
	var binding rbacv1.ClusterRoleBinding
	if !connected || reader.Get(context.Background(), client.ObjectKey{Name: addons.Administrators}, &binding, client.DisableReadYourWritesConsistency) != nil {
		return "" // it is read again before anything depends on it
	}
	if len(binding.Subjects) != 1 || binding.Subjects[0].Kind != rbacv1.GroupKind {
		return ""
	}
	return binding.Subjects[0].Name
}

// EngineOf returns the engine that writes to a workload cluster; nil while the cluster cannot be reached.
func (w *Workloads) EngineOf(name types.NamespacedName) *apply.Engine {
	if _, refused := w.refusal(name); refused {
		return nil
	}
	if cluster := w.Pool.Get(name); cluster != nil {
		if engine, connected := cluster.Engine(); connected {
			return engine
		}
	}
	return nil
}

func (w *Workloads) engine(s *state.Cluster) *apply.Engine { return w.EngineOf(nameOf(s)) }

// approver returns the engine as the interface of a handler; a nil engine has to become a nil interface.
func (w *Workloads) approver(s *state.Cluster) certificaterequest.Approver {
	if e := w.engine(s); e != nil {
		return e
	}
	return nil
}

func (w *Workloads) labeler(s *state.Cluster) nodelabel.Labeler {
	if e := w.engine(s); e != nil {
		return e
	}
	return nil
}

// Forget closes the connection to a cluster.
func (w *Workloads) Forget(s *state.Cluster) { w.forget(nameOf(s)) }

func (w *Workloads) forget(name types.NamespacedName) {
	if w == nil {
		return
	}
	w.Pool.Forget(name)
	w.mu.Lock()
	delete(w.refusals, name)
	w.mu.Unlock()
	w.turns.Forget(name.String())
	if w.Members != nil {
		w.Members.forget(name)
	}
}

// unmanageMembers stops managing the members of a cluster's etcd. It returns whether they were managed.
func (w *Workloads) unmanageMembers(name types.NamespacedName) (changed bool) {
	return w != nil && w.Members != nil && w.Members.unmanage(name)
}
