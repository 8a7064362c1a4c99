package cluster

import (
	"cmp"
	"context"
	"sync/atomic"

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

	"github.com/kvm-operator/kvm-operator/pkg/addons"
	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/chain"
	snapshot "github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/fence"
	"github.com/kvm-operator/kvm-operator/pkg/workload"
	"github.com/kvm-operator/kvm-operator/resources/certificaterequest"
	"github.com/kvm-operator/kvm-operator/resources/node"
	"github.com/kvm-operator/kvm-operator/resources/nodelabel"
)

// Workloads are the connections to workload clusters.
type Workloads struct {
	// Pool keeps the connections.
	Pool *workload.Pool
	// Addresses is where the API of a cluster answers, given the address of the Service "master".
	Addresses func(s *snapshot.Snapshot, serviceIP string) []string

	// Members keep the members of etcd. EtcdAddresses is where those of a cluster answer, host:port, by their node pods; nil, itself or
	// for a cluster, leaves them alone.
	Members       *Members
	EtcdAddresses func(s *snapshot.Snapshot) func(pod *corev1.Pod) string

	// turns let handlers ask clusters that may hang.
	turns *chain.Turns[*snapshot.Snapshot]

	// queue is the controller's, once that runs.
	queue atomic.Pointer[queue]
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// NewWorkloads makes the connections, by which nothing is changed unless the fence is open. scheme and mapper know the WorkloadKinds.
func NewWorkloads(scheme *runtime.Scheme, mapper meta.RESTMapper, f *fence.Fence) *Workloads {
	w := &Workloads{Addresses: (*snapshot.Snapshot).APIAddresses, EtcdAddresses: memberAddresses}
	w.Pool = workload.NewPool(workload.Options{Kinds: managedInside(), Scheme: scheme, Mapper: mapper, Changed: w.changed, Fence: f})
	w.Members = NewMembers(w.changed, f)
	w.turns = chain.NewTurns(func(s *snapshot.Snapshot) string { return nameOf(s).String() }, clock.RealClock{})
	return w
}

// WorkloadKinds are the kinds that the controller reads or writes in workload clusters.
func WorkloadKinds() []client.Object {
	return append(managedInside(), &corev1.Node{}, &corev1.Pod{}, &certificatesv1.CertificateSigningRequest{})
}

func managedInside() []client.Object { return addons.Kinds() }

// changed makes the controller look at a cluster. A change before the controller runs is seen when that begins.
func (w *Workloads) changed(name types.NamespacedName) {
	if q := w.queue.Load(); q != nil {
		(*q).Add(reconcile.Request{NamespacedName: name})
	}
}

// source tells the controller's queue of changes in workload clusters.
func (w *Workloads) source() source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		w.queue.Store(&q)
		return nil
	})
}

func nameOf(s *snapshot.Snapshot) types.NamespacedName { return client.ObjectKeyFromObject(s.Config) }

// look connects to the cluster, if it is not yet, and returns what is known of it. It does not wait. The operator introduces itself by what
// is stored: what was just issued may never be, and with another pair each time the connection would begin anew each time.
func (w *Workloads) look(s *snapshot.Snapshot, serviceIP string) snapshot.Workload {
	pair, stored := s.OperatorPair()
	addresses := w.Addresses(s, serviceIP)
	switch {
	case s.NamespaceTaken:
		w.Pool.Forget(nameOf(s))
		return snapshot.Workload{Reason: "OwnedByOther", Message: "the namespace " + s.Namespace() + " and the machines in it are not this cluster's"}
	case !stored:
		return snapshot.Workload{Reason: "NoCertificate", Message: "the certificates \"api\" and \"operator\" are missing"}
	}
	// Also where there is no address: for how long there has been none counts.
	cluster := w.Pool.Ensure(nameOf(s), workload.Access{
		Addresses: addresses, ServerName: s.APIServerName(), CA: pair.CA, Certificate: pair.Certificate, Key: pair.Key,
	})
	if len(addresses) == 0 {
		return snapshot.Workload{Reason: "NoMaster", Message: "no master has an address yet"}
	}
	nodes, connected := cluster.Nodes()
	requests, seen := cluster.Requests()
	daemonSets, deployments, listed := cluster.AddOns()
	by, known := cluster.Clock()
	if !connected || !seen || !listed || !known {
		state := cluster.State()
		return snapshot.Workload{Reason: cmp.Or(string(state.Reason), string(state.Phase)), Message: state.Message}
	}
	return snapshot.Workload{
		Connected: true, Watched: cluster.Watched(), Now: by.Now(), Nodes: nodes, Requests: requests, DaemonSets: daemonSets, Deployments: deployments,
		Administrators: administrators(cluster),
	}
}

// administrators is the group that is bound to the rights of an administrator, as the cache shows it.
func administrators(c *workload.Cluster) string {
	reader, connected := c.Client()
	var binding rbacv1.ClusterRoleBinding
	if !connected || reader.Get(context.Background(), client.ObjectKey{Name: addons.Administrators}, &binding, client.DisableReadYourWritesConsistency) != nil {
		return "" // it is asked for again before anything depends on it
	}
	if len(binding.Subjects) != 1 || binding.Subjects[0].Kind != rbacv1.GroupKind {
		return ""
	}
	return binding.Subjects[0].Name
}

// engine is what writes to the cluster; nil while it cannot be reached.
func (w *Workloads) engine(s *snapshot.Snapshot) *apply.Engine {
	if cluster := w.Pool.Get(nameOf(s)); cluster != nil {
		if engine, connected := cluster.Engine(); connected {
			return engine
		}
	}
	return nil
}

// approver, remover and labeller are the engine as handlers see it; a nil engine has to be a nil interface.
func (w *Workloads) approver(s *snapshot.Snapshot) certificaterequest.Approver {
	if e := w.engine(s); e != nil {
		return e
	}
	return nil
}

func (w *Workloads) remover(s *snapshot.Snapshot) node.Remover {
	if e := w.engine(s); e != nil {
		return e
	}
	return nil
}

func (w *Workloads) labeller(s *snapshot.Snapshot) nodelabel.Labeller {
	if e := w.engine(s); e != nil {
		return e
	}
	return nil
}

// Forget ends the connection to a cluster.
func (w *Workloads) Forget(s *snapshot.Snapshot) { w.forget(nameOf(s)) }

func (w *Workloads) forget(name types.NamespacedName) {
	if w == nil {
		return
	}
	w.Pool.Forget(name)
	w.turns.Forget(name.String())
	if w.Members != nil {
		w.Members.forget(name)
	}
}

// spareMembers has the members of etcd of a cluster left as they are.
func (w *Workloads) spareMembers(name types.NamespacedName) {
	if w != nil && w.Members != nil {
		w.Members.spare(name)
	}
}
