package apply

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/problem"
)

// verified remembers that an object at a version was found to hold an intent, so that a foreign addition to one of its
// lists does not make every reconcile apply it again.
type verified struct {
	uid     types.UID
	version string
	hash    string
}

// refused remembers that an intent met a problem, be it invalid or in the way of somebody's object, so that a cluster which
// is stuck does not ask the same thing again whenever anything else happens to it.
type refused struct {
	hash  string
	until time.Time
	err   error
}

// refusalHolds is how long the answer to an intent is taken to be the same.
const refusalHolds = 30 * time.Second

// lasting are the reasons of problems that end without an event: what is in the way is not in the cache.
var lasting = []string{reasonRefused, reasonNotOwned, reasonOwnedByOther}

func (e *Engine) remember(live client.Object, in *intent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.verified[in.key] = verified{uid: live.GetUID(), version: live.GetResourceVersion(), hash: in.hash}
}

func (e *Engine) forget(k objectKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.verified, k)
	delete(e.refused, k)
}

// refusal is what became of the same intent a short while ago, if it was one of the lasting problems.
func (e *Engine) refusal(in *intent) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, ok := e.refused[in.key]
	if ok && r.hash == in.hash && e.clock.Now().Before(r.until) {
		return r.err
	}
	delete(e.refused, in.key)
	return nil
}

func (e *Engine) noteRefusal(in *intent, err error) {
	p, ok := problem.As(err)
	if !ok || !slices.Contains(lasting, p.Reason) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refused[in.key] = refused{hash: in.hash, until: e.clock.Now().Add(refusalHolds), err: err}
}

// settled says whether live is known to hold the intent.
func (e *Engine) settled(live client.Object, in *intent) bool {
	e.mu.Lock()
	known := e.verified[in.key]
	e.mu.Unlock()
	if known == (verified{uid: live.GetUID(), version: live.GetResourceVersion(), hash: in.hash}) {
		return true
	}
	return live.GetAnnotations()[key.AnnotationApplied] == in.hash && in.heldBy(live)
}
