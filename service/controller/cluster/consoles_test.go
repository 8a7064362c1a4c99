package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// TestConsolesOfManyNodesFitIntoAStatus: all nodes of the largest cluster hang, and print what JSON has to escape. An object
// of etcd has 1.5 MiB at most.
func TestConsolesOfManyNodesFitIntoAStatus(t *testing.T) {
	const most = 512 << 10
	var nodes []v1alpha1.NodeStatus
	for i := range 516 {
		nodes = append(nodes, v1alpha1.NodeStatus{ID: fmt.Sprint(i), Console: strings.Repeat("\x01", 2<<10)})
	}
	nodes[0].Console, nodes[1].Console = "first", ""
	nodes[515].Console = "short"
	boundConsoles(nodes)
	encoded, err := json.Marshal(nodes)
	if err != nil || len(encoded) > most {
		t.Errorf("they have %d bytes (%v)", len(encoded), err)
	}
	got := []string{nodes[0].Console, nodes[1].Console, nodes[2].Console[:1], nodes[514].Console, nodes[515].Console}
	if diff := cmp.Diff([]string{"first", "", "\x01", unshown, "short"}, got); diff != "" {
		t.Errorf("the consoles (-want +got):\n%s", diff)
	}
	again := append([]v1alpha1.NodeStatus{}, nodes...)
	boundConsoles(again)
	if diff := cmp.Diff(nodes, again); diff != "" {
		t.Errorf("the next pass changes them:\n%s", diff)
	}
}
