package placing

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

func TestWhereAMachineIsPlaced(t *testing.T) {
	cordoned := func(n *Node) { n.Host.Spec.Unschedulable = true }
	pinnedTo := func(node string) func(*v1alpha1.SmolVM) { return func(vm *v1alpha1.SmolVM) { vm.Spec.NodeName = node } }
	boundTo := func(node string) func(*v1alpha1.SmolVM) {
		return func(vm *v1alpha1.SmolVM) { vm.Status.NodeName = node }
	}
	for name, test := range map[string]struct {
		vm            *v1alpha1.SmolVM
		nodes         []Node
		bound         []Claim
		assumed       []Claim
		node, message string
	}{
		"there is no node":                   {vm: machine("web"), message: "no SmolVMNode objects exist"},
		"the pinned node is not there":       {vm: machine("web", pinnedTo("n2")), nodes: []Node{node("n1")}, message: "pinned node n2 has no SmolVMNode runtime status"},
		"the pinned node, and no node":       {vm: machine("web", pinnedTo("n2")), message: "pinned node n2 has no SmolVMNode runtime status"},
		"the pinned node, not the best":      {vm: machine("web", pinnedTo("n2")), nodes: []Node{node("n1"), node("n2")}, bound: []Claim{claim("other", "n2", withPort(1))}, node: "n2"},
		"no other than the pinned node":      {vm: machine("web", pinnedTo("n2")), nodes: []Node{node("n1"), node("n2", cordoned)}, message: "pinned node n2 is not eligible: Kubernetes Node is unschedulable"},
		"reasons come by name":               {vm: machine("web"), nodes: []Node{node("n2", cordoned), node("n1", func(n *Node) { n.Host = nil })}, message: `no ready SmolVMNode matches this VM: n1: Kubernetes Node unavailable: Node "n1" not found; n2: Kubernetes Node is unschedulable`},
		"a bound machine stays":              {vm: machine("web", boundTo("n2")), nodes: []Node{node("n1")}, node: "n2"},
		"a bound machine stays without node": {vm: machine("web", boundTo("n2"), pinnedTo("n1")), node: "n2"},
		"an earlier decision stays":          {vm: machine("web"), nodes: []Node{node("n1"), node("n2")}, assumed: []Claim{claim("web", "n2")}, node: "n2"},
		"the decision of a machine of the same name that was deleted does not": {
			vm: machine("web", func(vm *v1alpha1.SmolVM) { vm.UID = "another" }), nodes: []Node{node("n1"), node("n2")}, assumed: []Claim{claim("web", "n2", withPort(1))}, node: "n1",
		},
		"what an earlier decision took is taken": {
			vm: machine("web"), nodes: []Node{node("n1")}, assumed: []Claim{claim("other", "n1")}, message: "no ready SmolVMNode matches this VM: n1: hostPort 8080 conflicts with team-a/other",
		},
		"what is bound and assumed counts once": {
			vm: machine("web", withPort(1)), nodes: []Node{node("n1", func(n *Node) {
				n.Runtime.Status.Allocatable = v1alpha1.Allocatable{CPUs: 4, MemoryMiB: 2048, StorageGiB: 60}
			})},
			bound: []Claim{claim("other", "n1")}, assumed: []Claim{claim("other", "n1")}, node: "n1",
		},
		"the node with the most memory left": {vm: machine("web"), nodes: []Node{node("n1"), node("n2"), node("n3")}, bound: []Claim{claim("a", "n1", withPort(1)), claim("b", "n2", withPort(1))}, node: "n3"},
		"sizes that overflow fit nowhere": {
			vm: machine("web", func(vm *v1alpha1.SmolVM) {
				vm.Spec.Storage = v1alpha1.Storage{StorageGiB: math.MaxInt64, OverlayGiB: math.MaxInt64}
			}),
			nodes:   []Node{node("n1")},
			message: "no ready SmolVMNode matches this VM: n1: insufficient storage: requested 9223372036854775807GiB used 0GiB allocatable 400GiB",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(test.vm, Seen{Nodes: test.nodes, Bound: test.bound, Assumed: test.assumed, Now: now})
			if got.Node != test.node || got.Message != test.message {
				t.Errorf("it is %q, %q, want %q, %q", got.Node, got.Message, test.node, test.message)
			}
		})
	}
}

// TestTies: of nodes that suit, that with the most free memory is chosen, then the first by name, regardless of the
// order in which they are seen. A node that does not say how much it has comes last.
func TestTies(t *testing.T) {
	decided := 0
	free := []int64{-1, 0, 2048, 4096} // -1: the node does not suit
	for _, a := range free {
		for _, b := range free {
			for _, c := range free {
				nodes, want, most := []Node{}, "", int64(-1)
				for i, memory := range []int64{a, b, c} {
					name := fmt.Sprintf("n%d", i)
					nodes = append(nodes, node(name, func(n *Node) {
						n.Runtime.Status.Allocatable.MemoryMiB = max(memory, 0)
						n.Host.Spec.Unschedulable = memory < 0
					}))
					if memory > most {
						want, most = name, memory
					}
				}
				for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
					decided++
					got := Decide(machine("web"), Seen{Nodes: []Node{nodes[order[0]], nodes[order[1]], nodes[order[2]]}, Now: now})
					if got.Node != want {
						t.Errorf("of %d, %d, %d MiB in order %v, %s is chosen, want %q", a, b, c, order, got.Node, want)
					}
				}
			}
		}
	}
	t.Logf("%d choices decided", decided)
}

func TestAMessageFitsIntoACondition(t *testing.T) {
	var nodes []Node
	for i := range 5000 {
		nodes = append(nodes, node(fmt.Sprintf("%04d%s", i, strings.Repeat("n", 249)), func(n *Node) { n.Host.Spec.Unschedulable = true }))
	}
	got := Decide(machine("web"), Seen{Nodes: nodes, Now: now})
	if len(got.Message) > 32768 || !strings.HasSuffix(got.Message, "; and 4980 more") || len(got.Rejected) != 5000 {
		t.Errorf("the message has %d bytes and %d nodes: %s", len(got.Message), len(got.Rejected), got.Message)
	}
}

func TestASpecThatGrewAfterTheDecisionIsShort(t *testing.T) {
	seen := Seen{Nodes: []Node{node("n1")}, Bound: []Claim{claim("other", "n1", withPort(1)), claim("web", "n1")}, Now: now}
	for name, test := range map[string]struct {
		change func(*v1alpha1.SmolVM)
		want   string
	}{
		"it has not grown":           {change: func(*v1alpha1.SmolVM) {}},
		"all that is left":           {change: func(vm *v1alpha1.SmolVM) { vm.Spec.Resources.CPUs = 6 }},
		"more CPUs":                  {change: func(vm *v1alpha1.SmolVM) { vm.Spec.Resources.CPUs = 7 }, want: "insufficient cpu: requested 7 used 2 allocatable 8"},
		"a disk":                     {change: func(vm *v1alpha1.SmolVM) { vm.Spec.Storage.StorageGiB = 361 }, want: "insufficient storage: requested 371GiB used 30GiB allocatable 400GiB"},
		"a port":                     {change: withPort(1), want: "hostPort 1 conflicts with team-a/other"},
		"the node does not report":   {change: func(vm *v1alpha1.SmolVM) { vm.Status.NodeName, vm.Spec.Resources.CPUs = "n2", 255 }},
		"the node is out of service": {change: func(vm *v1alpha1.SmolVM) { vm.Spec.NodeSelector = map[string]string{"zone": "b"} }},
	} {
		t.Run(name, func(t *testing.T) {
			vm := machine("web", func(vm *v1alpha1.SmolVM) { vm.Status.NodeName = "n1" }, test.change)
			if got := Shortage(ClaimOf(vm), seen); got != test.want {
				t.Errorf("it is %q, want %q", got, test.want)
			}
		})
	}
}

func TestWhatAMachineTakes(t *testing.T) {
	size := func(n int64) *int64 { return &n }
	vm := &v1alpha1.SmolVM{}
	vm.Namespace, vm.Name, vm.UID, vm.Status.NodeName = "team-a", "web", "uid", "n1"
	want := Claim{VM: types.NamespacedName{Namespace: "team-a", Name: "web"}, UID: "uid", Node: "n1", CPUs: 1, MemoryMiB: 512, StorageGiB: 30}
	if diff := cmp.Diff(want, ClaimOf(vm)); diff != "" {
		t.Errorf("without sizes (-want +got):\n%s", diff)
	}
	vm.Spec.Storage = v1alpha1.Storage{StorageGiB: 1, OverlayGiB: 50}
	vm.Status.StorageGiB, vm.Status.OverlayGiB = size(40), size(2)
	vm.Spec.Network.Ports = []v1alpha1.Port{{HostPort: 1}, {HostPort: 2}}
	vm.Status.Ports = []v1alpha1.Port{{HostPort: 2}, {HostPort: 3}}
	want.StorageGiB, want.Ports = 90, []int32{1, 2, 3}
	if diff := cmp.Diff(want, ClaimOf(vm)); diff != "" {
		t.Errorf("after a change of the spec (-want +got):\n%s", diff)
	}
	want.CPUs, want.Ports = 4, []int32{1, 2, 3, 4}
	before := ClaimOf(vm)
	if diff := cmp.Diff(want, before.Covering(4, 256, 4, 1)); diff != "" {
		t.Errorf("with what the machine has (-want +got):\n%s", diff)
	}
	want.CPUs, want.StorageGiB, want.Ports = 2, 15, []int32{7}
	if diff := cmp.Diff(want, before.Covering(8, 256).Having(2, 0, 15, 7, 0, 7)); diff != "" {
		t.Errorf("with what the machine has alone (-want +got):\n%s", diff)
	}
	if !slices.Equal(before.Ports, []int32{1, 2, 3}) {
		t.Errorf("Covering changes the Claim that it is called on: %v", before.Ports)
	}
}
