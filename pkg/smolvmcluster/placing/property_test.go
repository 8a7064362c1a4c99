package placing

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// cluster is a model of a cluster whose cache lags behind: bindings and deletions are seen later than they happen.
type cluster struct {
	random *rand.Rand
	nodes  []Node
	// placed are the machines as they were created on their nodes, and specs what users made of them since.
	placed, specs map[types.UID]*v1alpha1.SmolVM
	// cached are the SmolVMs as the cache has them, and assumed the decisions that it does not have yet.
	cached  map[types.UID]*v1alpha1.SmolVM
	assumed map[types.UID]Claim
	created int
}

// TestNothingIsTakenTwice: whatever is created, changed and deleted in whatever order, a node never has more than there is,
// nor a port twice.
func TestNothingIsTakenTwice(t *testing.T) {
	const runs, steps = 150, 150
	bound, refused, deleted := 0, 0, 0
	for run := range runs {
		c := newCluster(rand.New(rand.NewPCG(uint64(run), 1)))
		for step := range steps {
			switch c.random.IntN(6) {
			case 0, 1, 2:
				if c.place() {
					bound++
				} else {
					refused++
				}
			case 3:
				c.edit()
			case 4:
				if c.remove() {
					deleted++
				}
			case 5:
				c.catchUp()
			}
			if complaint := c.check(); complaint != "" {
				t.Fatalf("run %d, step %d: %s", run, step, complaint)
			}
		}
	}
	t.Logf("%d bound, %d refused, %d deleted in %d sequences", bound, refused, deleted, runs)
	if bound < 1000 || refused < 1000 || deleted < 1000 {
		t.Error("the sequences do not try all")
	}
}

func newCluster(random *rand.Rand) *cluster {
	c := &cluster{random: random, placed: map[types.UID]*v1alpha1.SmolVM{}, specs: map[types.UID]*v1alpha1.SmolVM{}, cached: map[types.UID]*v1alpha1.SmolVM{}, assumed: map[types.UID]Claim{}}
	for i := range 1 + random.IntN(3) {
		c.nodes = append(c.nodes, node(fmt.Sprintf("n%d", i), func(n *Node) {
			n.Runtime.Status.Allocatable = v1alpha1.Allocatable{CPUs: 1 + random.Int32N(8), MemoryMiB: 512 + random.Int64N(8192), StorageGiB: 30 + random.Int64N(200)}
		}))
	}
	return c
}

// place creates a SmolVM, decides, and writes the binding. Names are used again.
func (c *cluster) place() bool {
	c.created++
	vm := machine(fmt.Sprintf("vm-%d", c.random.IntN(4)), c.randomSpec)
	vm.Namespace, vm.UID = fmt.Sprintf("team-%d", c.random.IntN(2)), types.UID(fmt.Sprint(c.created))
	d := Decide(vm, Seen{Nodes: c.nodes, Bound: c.bound(), Assumed: slices.Collect(maps.Values(c.assumed)), Now: now})
	if d.Node == "" {
		return false
	}
	vm.Status.NodeName = d.Node
	c.placed[vm.UID], c.specs[vm.UID], c.assumed[vm.UID] = vm.DeepCopy(), vm, ClaimOf(vm)
	return true
}

func (c *cluster) randomSpec(vm *v1alpha1.SmolVM) {
	vm.Spec.NodeSelector, vm.Spec.Network.Ports = nil, nil
	vm.Spec.Resources = v1alpha1.Resources{CPUs: c.random.Int32N(4), MemoryMiB: 64 * c.random.Int32N(32)}
	vm.Spec.Storage = v1alpha1.Storage{StorageGiB: c.random.Int64N(30), OverlayGiB: c.random.Int64N(10)}
	for _, port := range c.random.Perm(8)[:c.random.IntN(3)] {
		vm.Spec.Network.Ports = append(vm.Spec.Network.Ports, v1alpha1.Port{HostPort: int32(8000 + port), GuestPort: 80})
	}
	if c.random.IntN(4) == 0 {
		vm.Spec.NodeName = c.nodes[c.random.IntN(len(c.nodes))].Runtime.Name
	}
}

// bound are the Claims of the cache, with what the machines were created with.
func (c *cluster) bound() []Claim {
	var all []Claim
	for uid, vm := range c.cached {
		as := c.placedOr(uid, vm)
		have := ClaimOf(as)
		covering := ClaimOf(vm).Covering(have.CPUs, have.MemoryMiB, have.Ports...)
		covering.StorageGiB = max(covering.StorageGiB, have.StorageGiB)
		all = append(all, covering)
	}
	return all
}

func (c *cluster) placedOr(uid types.UID, otherwise *v1alpha1.SmolVM) *v1alpha1.SmolVM {
	if vm, ok := c.placed[uid]; ok {
		return vm
	}
	return otherwise
}

// edit changes a spec, which does not change the machine.
func (c *cluster) edit() {
	if uid, ok := c.any(); ok {
		vm := c.specs[uid]
		node := vm.Spec.NodeName
		c.randomSpec(vm)
		vm.Spec.NodeName = node
	}
}

// remove deletes a SmolVM whose machine is gone, and forgets the decision about it.
func (c *cluster) remove() bool {
	uid, ok := c.any()
	delete(c.placed, uid)
	delete(c.specs, uid)
	delete(c.assumed, uid)
	return ok
}

// any is one of the machines, the same one each time that the run is repeated.
func (c *cluster) any() (types.UID, bool) {
	uids := slices.Sorted(maps.Keys(c.placed))
	if len(uids) == 0 {
		return "", false
	}
	return uids[c.random.IntN(len(uids))], true
}

// catchUp lets the cache see some of what has happened.
func (c *cluster) catchUp() {
	for _, uid := range slices.Sorted(maps.Keys(c.cached)) {
		if c.placed[uid] == nil && c.random.IntN(2) == 0 {
			delete(c.cached, uid)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(c.specs)) {
		if c.random.IntN(2) == 0 {
			c.cached[uid] = c.specs[uid].DeepCopy()
			delete(c.assumed, uid)
		}
	}
}

// check counts what the machines have, with nothing of the package under test.
func (c *cluster) check() string {
	for _, n := range c.nodes {
		var cpus, memory, storage int64
		ports := map[int32]bool{}
		for _, vm := range c.placed {
			if vm.Status.NodeName != n.Runtime.Name {
				continue
			}
			if vm.Spec.NodeName != "" && vm.Spec.NodeName != n.Runtime.Name {
				return fmt.Sprintf("a machine for %s is on %s", vm.Spec.NodeName, n.Runtime.Name)
			}
			r, s := vm.Spec.Resources, vm.Spec.Storage
			cpus, memory = cpus+max(1, int64(r.CPUs)), memory+int64(r.MemoryMiB)
			if r.MemoryMiB == 0 {
				memory += 512
			}
			if storage += s.StorageGiB + s.OverlayGiB; s.StorageGiB == 0 {
				storage += 20
			}
			if s.OverlayGiB == 0 {
				storage += 10
			}
			for _, port := range vm.Spec.Network.Ports {
				if ports[port.HostPort] {
					return fmt.Sprintf("port %d of %s is taken twice", port.HostPort, n.Runtime.Name)
				}
				ports[port.HostPort] = true
			}
		}
		a := n.Runtime.Status.Allocatable
		if cpus > int64(a.CPUs) || memory > a.MemoryMiB || storage > a.StorageGiB {
			return fmt.Sprintf("%s has %d CPUs, %d MiB, %d GiB of %+v", n.Runtime.Name, cpus, memory, storage, a)
		}
	}
	return ""
}
