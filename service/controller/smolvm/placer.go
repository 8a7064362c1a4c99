package smolvm

import (
	"context"
	"math"
	"reflect"
	"sync"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinespec"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/nodes"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/placing"
)

// placer places SmolVMs one after the other. What it has decided counts for the next one, although no cache has it yet.
type placer struct {
	client client.Reader
	nodes  *nodes.Pool
	clock  clock.PassiveClock

	mu      sync.Mutex
	assumed map[types.NamespacedName]placing.Claim
	// granted is what SmolVMs with a node were last given of it: by the decision, or by a spec that was found to fit since. A
	// later change of the spec takes nothing until it is found to fit.
	granted map[types.NamespacedName]placing.Claim
}

func newPlacer(c client.Reader, n *nodes.Pool, now clock.PassiveClock) *placer {
	return &placer{client: c, nodes: n, clock: now, assumed: map[types.NamespacedName]placing.Claim{}, granted: map[types.NamespacedName]placing.Claim{}}
}

// place decides where a SmolVM without a node is placed, and remembers it. uid is the UID of that node.
func (p *placer) place(ctx context.Context, vm *v1alpha1.SmolVM) (d placing.Decision, uid types.UID, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A decision that was not stored does not bind a user who has named another node since.
	if a, ok := p.assumed[client.ObjectKeyFromObject(vm)]; ok && vm.Spec.NodeName != "" && vm.Spec.NodeName != a.Node {
		delete(p.assumed, client.ObjectKeyFromObject(vm))
	}
	// The caches are read under the lock: an assumption is given up only once the cache that is decided on has the node.
	seen, err := p.see(ctx)
	if err != nil {
		return d, "", err
	}
	d = placing.Decide(vm, seen)
	if d.Node == "" {
		return d, "", nil
	}
	claim := placing.ClaimOf(vm)
	claim.Node = d.Node
	p.assumed[claim.VM], p.granted[claim.VM] = claim, claim
	for _, n := range seen.Nodes {
		if n.Runtime.Name == d.Node {
			uid = n.Runtime.Status.NodeUID
		}
	}
	return d, uid, nil
}

// shortage returns what the node of a SmolVM lacks for the machine that its spec wants, or for the larger disks of the one
// that it has. If there is room and it is taken now, it counts as taken. changed says that this is not what it took before.
func (p *placer) shortage(ctx context.Context, vm *v1alpha1.SmolVM, m *api.Machine) (lacks string, changed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen, err := p.see(ctx)
	if err != nil {
		return "", false, err
	}
	wants := placing.ClaimOf(vm)
	if m != nil {
		wants = having(wants, m).Larger(wants.StorageGiB)
	}
	if lacks = placing.Shortage(wants, seen); lacks != "" || m != nil && !isGrown(vm, m) {
		return lacks, false, nil
	}
	before := p.granted[wants.VM]
	p.granted[wants.VM] = wants
	return "", before.UID == vm.UID && !reflect.DeepEqual(before, wants), nil
}

// isGrown returns whether the disks of a machine are made larger as the spec says: it does not run, and none would shrink.
func isGrown(vm *v1alpha1.SmolVM, m *api.Machine) bool {
	down := m.State == api.StateCreated || m.State == api.StateStopped || m.State == api.StateFailed
	fits := func(wants, has int64) bool { return wants == 0 || wants >= has }
	return down && fits(vm.Spec.Storage.StorageGiB, m.StorageGB) && fits(vm.Spec.Storage.OverlayGiB, m.OverlayGB)
}

// settle forgets larger disks that were granted, and are no longer wanted.
func (p *placer) settle(vm *v1alpha1.SmolVM, m *api.Machine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m != nil {
		p.granted[client.ObjectKeyFromObject(vm)] = having(placing.ClaimOf(vm), m)
	}
}

func (p *placer) forget(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.assumed, name)
	delete(p.granted, name)
}

// see reads what decisions are made from. mu is held.
func (p *placer) see(ctx context.Context) (placing.Seen, error) {
	seen := placing.Seen{Now: p.clock.Now()}
	var runtimes v1alpha1.SmolVMNodeList
	var hosts corev1.NodeList
	var vms v1alpha1.SmolVMList
	for _, list := range []client.ObjectList{&runtimes, &hosts, &vms} {
		// What is listed is only read. A decision that the cache does not have yet is assumed, so there is no need to wait
		// for the cache, which would make all others wait, too.
		if err := p.client.List(ctx, list, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
			return seen, microerror.Mask(err)
		}
	}
	byName := map[string]*corev1.Node{}
	for i := range hosts.Items {
		byName[hosts.Items[i].Name] = &hosts.Items[i]
	}
	for i := range runtimes.Items {
		seen.Nodes = append(seen.Nodes, placing.Node{Runtime: &runtimes.Items[i], Host: byName[runtimes.Items[i].Name]})
	}
	for i := range vms.Items {
		vm := &vms.Items[i]
		if vm.Status.NodeName == "" {
			continue
		}
		seen.Bound = append(seen.Bound, p.claim(vm))
		if a, ok := p.assumed[client.ObjectKeyFromObject(vm)]; ok && a.UID == vm.UID {
			delete(p.assumed, client.ObjectKeyFromObject(vm))
		}
	}
	for _, a := range p.assumed {
		seen.Assumed = append(seen.Assumed, a)
	}
	return seen, nil
}

// claim returns what a SmolVM takes of its node: what its machine has, and larger disks that were granted; or else what it
// was granted. After a restart of the controller that is what the spec says when it is first seen. mu is held.
func (p *placer) claim(vm *v1alpha1.SmolVM) placing.Claim {
	key, c := client.ObjectKeyFromObject(vm), placing.ClaimOf(vm)
	granted, there := p.granted[key]
	there = there && granted.UID == vm.UID && granted.Node == c.Node
	if m := p.nodes.Peek(vm.Status.NodeName, machinespec.Name(vm)); m != nil {
		c = having(c, m)
		if there && granted.CPUs == c.CPUs && granted.MemoryMiB == c.MemoryMiB {
			c = c.Larger(granted.StorageGiB)
		}
		return c
	}
	if there {
		return granted
	}
	p.granted[key] = c
	return c
}

// having returns the Claim with what a machine has.
func having(c placing.Claim, m *api.Machine) placing.Claim {
	var ports []int32
	for _, port := range m.Ports {
		ports = append(ports, int32(port.Host))
	}
	var disks int64
	if m.StorageGB > 0 && m.OverlayGB > 0 && m.StorageGB <= math.MaxInt64-m.OverlayGB {
		disks = m.StorageGB + m.OverlayGB
	}
	return c.Having(int64(m.CPUs), m.MemoryMB, disks, ports...)
}
