package cluster

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
)

// Members manage the members of each cluster's etcd so that they match its masters. It is a manager.Runnable; only
// Start and Ask wait.
type Members struct {
	changed func(types.NamespacedName)
	fence   *fence.Fence

	mu      sync.Mutex
	keepers map[types.NamespacedName]*keeper
	// spared are the clusters whose members are not queried on purpose. Clusters in neither map have not been
	// reconciled yet.
	spared map[types.NamespacedName]bool
	// running is nil until Start is called.
	running context.Context // the context of keepers that are added later
	ended   sync.WaitGroup
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
	return &Members{changed: changed, fence: f, keepers: map[types.NamespacedName]*keeper{}, spared: map[types.NamespacedName]bool{}}
}

// Start runs the keepers until the context ends and waits until all have ended.
func (m *Members) Start(ctx context.Context) error {
	m.mu.Lock()
	m.running = ctx
	for _, k := range m.keepers {
		m.launch(k)
	}
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	for _, k := range m.keepers {
		k.end()
	}
	m.mu.Unlock()
	m.ended.Wait()
	return nil
}

// launch runs a keeper. It starts none once the context of Start has ended, because Start then waits for the
// goroutines.
func (m *Members) launch(k *keeper) {
	if m.running == nil || m.running.Err() != nil {
		return
	}
	m.ended.Go(func() { k.Run(k.life) })
}

// want sets the members that a cluster should have. It returns whether they begin to be managed.
func (m *Members) want(name types.NamespacedName, a etcd.Access, masters []etcd.Master) (begins bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.spared, name)
	k := m.keepers[name]
	if begins = k == nil; begins {
		k = &keeper{Keeper: etcd.NewKeeper(log.Log.WithName("etcd").WithValues("cluster", name.String()), m.fence, func() { m.changed(name) })}
		k.life, k.end = context.WithCancel(context.Background())
		m.keepers[name] = k
		defer m.launch(k)
	}
	k.Want(a, masters)
	return begins
}

// State returns what is known of the members of a cluster.
func (m *Members) State(name types.NamespacedName) etcd.State {
	if k, _ := m.of(name); k != nil {
		return k.State()
	}
	return etcd.State{}
}

// Vote returns what is known of the vote of a member.
func (m *Members) Vote(name types.NamespacedName, member string) etcd.Vote {
	k, spared := m.of(name)
	switch {
	case spared:
		return etcd.VoteUnknown
	case k == nil:
		return etcd.VoteAwaited
	}
	return k.Vote(member)
}

// Ask queries the members of a cluster, and waits until that is done or the context ends. It returns whether it was
// done, and true for a cluster whose members are not queried on purpose.
func (m *Members) Ask(ctx context.Context, name types.NamespacedName) bool {
	k, spared := m.of(name)
	return spared || k != nil && k.Ask(ctx)
}

func (m *Members) of(name types.NamespacedName) (k *keeper, spared bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keepers[name], m.spared[name]
}

// spare stops managing and querying the members of a cluster. It returns whether they were managed.
func (m *Members) spare(name types.NamespacedName) (ends bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ends = m.keepers[name] != nil
	m.drop(name)
	m.spared[name] = true
	return ends
}

// forget removes a cluster that is gone.
func (m *Members) forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(name)
	delete(m.spared, name)
}

// drop stops the keeper of a cluster. mu is held.
func (m *Members) drop(name types.NamespacedName) {
	if k := m.keepers[name]; k != nil {
		k.end()
		delete(m.keepers, name)
	}
}

// followMembers sets the members that the cluster's etcd should have, and the machines that are queried: those that may
// run a member, including those of masters that are no longer in the spec. While a snapshot is restored, members are
// stopped on purpose, and new ones will replace them. It returns whether that began or ended.
func (w *Workloads) followMembers(s *state.Cluster) bool {
	pair, stored := s.Certificates[pki.EtcdClient]
	address := w.etcdAddresses(s)
	if address == nil || !stored || s.NamespaceTaken || s.Restore.Halted() {
		return w.spareMembers(nameOf(s))
	}
	access := etcd.Access{CA: pair.CA, Certificate: pair.Certificate, Key: pair.Key}
	stay := slices.DeleteFunc(slices.Clone(s.Gone), s.Former)
	for _, n := range append(s.Masters(), stay...) {
		if pod := n.Holder(); pod != nil {
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
