package machine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// pause is how long details of a Machine wait for others before its status is written. KubeVirt reports the start of one
// guest in some ten steps, most of them within this time, and each write is a request.
const pause = 500 * time.Millisecond

// pace decides which status of a Machine is written at once. It is safe for concurrent use.
type pace struct {
	mu sync.Mutex
	// waiting is since when details of Machines wait.
	waiting map[types.NamespacedName]time.Time
}

func newPace() *pace { return &pace{waiting: map[types.NamespacedName]time.Time{}} }

// waits returns whether a status that differs from the stored one is to be written later. A phase, what Ready says and
// whether the spec was reconciled are written at once, with all details.
func (p *pace) waits(machine types.NamespacedName, stored, next *v1alpha1.MachineStatus, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, waiting := p.waiting[machine]
	if waited := now.Sub(since); !told(stored, next) || waiting && (waited >= pause || waited < 0) {
		delete(p.waiting, machine)
		return false
	}
	if !waiting {
		p.waiting[machine] = now
	}
	return true
}

// rest records that nothing of a Machine waits: it is gone, or its stored status is what it has to be.
func (p *pace) rest(machine types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, machine)
}

// again returns when what waits is to be written; 0 if nothing waits.
func (p *pace) again(machine types.NamespacedName, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, waiting := p.waiting[machine]
	if !waiting {
		return 0
	}
	return min(max(since.Add(pause).Sub(now), time.Millisecond), pause)
}

// told returns whether a stored status says the same as the next one but for details.
func told(stored, next *v1alpha1.MachineStatus) bool {
	before, after := meta.FindStatusCondition(stored.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionReady)
	return before != nil && after != nil && before.Status == after.Status && before.Reason == after.Reason &&
		stored.Phase == next.Phase && stored.ObservedGeneration == next.ObservedGeneration && stored.FailureReason == next.FailureReason
}
