package machine

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

func statusOf(phase, reason, node string, generation int64) *v1alpha1.MachineStatus {
	return &v1alpha1.MachineStatus{
		Phase: phase, NodeName: node, ObservedGeneration: generation,
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason}},
	}
}

// TestDetailsWaitAndNewsDoNot: what the user waits for is written at once, and details a moment after they were seen.
func TestDetailsWaitAndNewsDoNot(t *testing.T) {
	machine, seen := types.NamespacedName{Namespace: "ci", Name: "vm"}, time.Unix(1000, 0)
	stored := statusOf(v1alpha1.PhaseCreating, v1alpha1.ReasonCreating, "", 1)
	node := statusOf(v1alpha1.PhaseCreating, v1alpha1.ReasonCreating, "a", 1)
	for name, c := range map[string]struct {
		next  *v1alpha1.MachineStatus
		after time.Duration
		waits bool
	}{
		"a node at once":            {node, time.Millisecond, true},
		"a node after a pause":      {node, pause, false},
		"a node, the clock is back": {node, -time.Hour, false},
		"another phase":             {statusOf(v1alpha1.PhaseRunning, v1alpha1.ReasonCreating, "a", 1), time.Millisecond, false},
		"another reason":            {statusOf(v1alpha1.PhaseCreating, v1alpha1.InsufficientResources, "", 1), time.Millisecond, false},
		"another generation":        {statusOf(v1alpha1.PhaseCreating, v1alpha1.ReasonCreating, "", 2), time.Millisecond, false},
		"no condition":              {&v1alpha1.MachineStatus{Phase: v1alpha1.PhaseCreating, ObservedGeneration: 1}, time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPace()
			if !p.waits(machine, stored, node, seen) || p.again(machine, seen) != pause {
				t.Fatalf("the first detail does not wait: %s", p.again(machine, seen))
			}
			now := seen.Add(c.after)
			if got := p.waits(machine, stored, c.next, now); got != c.waits {
				t.Errorf("waits: %t", got)
			}
			if again := p.again(machine, now); (again > 0) != c.waits || again > pause {
				t.Errorf("again after %s", again)
			}
			p.rest(machine)
			if again := p.again(machine, now); again != 0 || len(p.waiting) > 0 {
				t.Errorf("again after %s although nothing waits", again)
			}
		})
	}
}
