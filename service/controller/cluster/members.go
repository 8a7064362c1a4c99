package cluster

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/sessions"
)

// Members manage the members of each cluster's etcd so that they match its masters. It is a manager.Runnable; only
// Start and Ask wait.
type Members struct {
	changed func(types.NamespacedName)
	fence   *fence.Fence
	keepers *sessions.Sessions[*keeper]
	log     logr.Logger
	// newKeeper is etcd.NewKeeper.
	newKeeper func(logr.Logger, *fence.Fence, func()) *etcd.Keeper

	mu sync.Mutex
	// unmanaged are the clusters whose members are not queried on purpose. Clusters that are neither there nor have a
	// keeper have not been reconciled yet.
	unmanaged map[types.NamespacedName]bool
}

// keeper is the keeper of one cluster. end may be called before the keeper starts.
type keeper struct {
	*etcd.Keeper
	life context.Context // the keeper outlives the call that creates it
	end  context.CancelFunc
}

// NewMembers creates Members that connect to no server before they are started, and change nothing unless the fence is
// open.
func NewMembers(changed func(types.NamespacedName), f *fence.Fence) *Members {
	run := func(_ context.Context, k *keeper) { k.Run(k.life) }
	end := func(k *keeper) { k.end() }
	return &Members{
		changed: changed, fence: f, keepers: sessions.New(run, end), log: log.Log.WithName("etcd"), newKeeper: etcd.NewKeeper,
		unmanaged: map[types.NamespacedName]bool{},
	}
}

// Start runs the keepers until the context ends and waits until all have ended.
func (m *Members) Start(ctx context.Context) error { return m.keepers.Start(ctx) }

// want sets the members that a cluster should have. It returns whether they begin to be managed.
func (m *Members) want(name types.NamespacedName, a etcd.Access, masters []etcd.Master) (begins bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.unmanaged, name)
	k, begins := m.keepers.Ensure(name, func(*keeper) bool { return true }, func() *keeper {
		// The key is that of the controllers' lines, so that a cluster's log has its members too.
		k := &keeper{Keeper: m.newKeeper(m.log.WithValues("kvmconfig", name.String()), m.fence, func() { m.changed(name) })}
		k.life, k.end = context.WithCancel(context.Background())
		k.Want(a, masters) // before it runs
		return k
	})
	if !begins {
		k.Want(a, masters)
	}
	return begins
}

// State returns what is known of the members of a cluster.
func (m *Members) State(name types.NamespacedName) etcd.State {
	if k, _ := m.of(name); k != nil {
		return k.State()
	}
	return etcd.State{}
}

// Vote returns what is known of the vote of a member, and how many members have a vote, see etcd.Keeper.Vote.
func (m *Members) Vote(name types.NamespacedName, member string) (vote etcd.Vote, voters int) {
	k, unmanaged := m.of(name)
	switch {
	case unmanaged:
		return etcd.VoteUnknown, 0
	case k == nil:
		return etcd.VoteAwaited, 0
	}
	return k.Vote(member)
}

// Ask queries the members of a cluster, and waits until that is done or the context ends. It returns whether it was
// done, and true for a cluster whose members are not queried on purpose.
func (m *Members) Ask(ctx context.Context, name types.NamespacedName) bool {
	k, unmanaged := m.of(name)
	return unmanaged || k != nil && k.Ask(ctx)
}

func (m *Members) of(name types.NamespacedName) (k *keeper, unmanaged bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, _ = m.keepers.Get(name)
	return k, m.unmanaged[name]
}

// unmanage stops managing and querying the members of a cluster. It returns whether they were managed.
func (m *Members) unmanage(name types.NamespacedName) (ends bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unmanaged[name] = true
	return m.keepers.End(name)
}

// forget removes a cluster that is gone.
func (m *Members) forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.unmanaged, name)
	m.keepers.End(name)
}

// followMembers sets the members that the cluster's etcd should have, and the machines that are queried: those that may
// run a member, including those of masters that are no longer in the spec. While a snapshot is restored, members are
// stopped on purpose, and new ones will replace them. It returns whether that began or ended.
func (w *Workloads) followMembers(s *state.Cluster) bool {
	pair, stored := s.Certificates[pki.EtcdClient]
	address := w.etcdAddresses(s)
	if address == nil || !stored || s.NamespaceTaken || s.Restore.Halted() {
		return w.unmanageMembers(nameOf(s))
	}
	access := etcd.Access{CA: pair.CA, Certificate: pair.Certificate, Key: pair.Key}
	stay := slices.DeleteFunc(slices.Clone(s.Gone), s.PredatesRestore)
	for _, n := range append(s.Masters(), stay...) {
		if pod := n.ActivePod(); pod != nil {
			access.Endpoints = append(access.Endpoints, etcd.Endpoint{Name: pki.EtcdMember(n.ID), Address: address(pod), ServerName: s.MemberHost(n.ID)})
		}
	}
	return w.Members.want(nameOf(s), access, s.EtcdMasters())
}

func (w *Workloads) etcdAddresses(s *state.Cluster) func(*corev1.Pod) string {
	if w.EtcdAddresses == nil {
		return nil
	}
	return w.EtcdAddresses(s)
}

// memberAddresses returns the addresses of the node pods.
func memberAddresses(*state.Cluster) func(*corev1.Pod) string {
	return func(pod *corev1.Pod) string {
		return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(key.PortEtcdClient)))
	}
}
