package apply

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// verified records that an object at a version was found to hold an intent, so that a foreign addition to one of its
// lists does not make every reconcile apply it again.
type verified struct {
	uid     types.UID
	version string
	hash    string
}

// made records from which intent an object was created. If it is not as wanted nevertheless, a webhook made it so, and
// would do so again: its recreation would never end.
type made struct {
	uid  types.UID
	hash string
}

// refused records that an intent met a problem, because it is invalid or conflicts with an object of another owner, so
// that a stuck cluster does not repeat the request with every reconcile.
type refused struct {
	hash string
	// seen is the version of the object in the cache; empty if the cache did not have it.
	seen string
	err  error
}

// refusalHolds is how long the result for an intent is assumed to stay the same.
const refusalHolds = 30 * time.Second

// lasting are the reasons of problems that may end without an event, because the API server decides, or because the
// conflicting object is not in the cache.
var lasting = []string{reasonRefused, reasonNotOwned, reasonOwnedByOther}

func (e *Engine) remember(live client.Object, in *intent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.verified[in.key] = verified{uid: live.GetUID(), version: live.GetResourceVersion(), hash: in.hash}
}

// rememberMade records that an object was created from an intent.
func (e *Engine) rememberMade(live client.Object, in *intent) {
	e.remember(live, in)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.made[in.key] = made{uid: live.GetUID(), hash: in.hash}
}

// madeFrom returns whether the object is known to have been created from the same intent.
func (e *Engine) madeFrom(live client.Object, in *intent) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.made[in.key] == made{uid: live.GetUID(), hash: in.hash}
}

func (e *Engine) forget(k objectKey) {
	e.refused.Drop(k)
	e.contests.Drop(k)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.verified, k)
	delete(e.made, k)
}

// refusal returns the recent error for the same intent, if it was one of the lasting problems. One with a foreign object
// ends before its time when the cache shows that the object is gone or has changed.
func (e *Engine) refusal(ctx context.Context, in *intent) error {
	r, left := e.refused.Get(in.key, e.clock.Now())
	if left == 0 {
		return nil
	}
	holds := r.hash == in.hash
	if holds && IsForeign(r.err) {
		live, err := e.read(ctx, e.client, in.object)
		holds = err == nil && versionOf(live) == r.seen
	}
	if holds {
		return r.err
	}
	e.refused.Drop(in.key)
	return nil
}

func (e *Engine) noteRefusal(in *intent, err error) {
	if p, ok := problem.As(err); ok && slices.Contains(lasting, p.Reason) {
		e.refused.Put(in.key, refused{hash: in.hash, seen: in.seen, err: err}, e.clock.Now(), refusalHolds)
	}
}

// versionOf returns the version of an object, and nothing for none. No two objects of one name have the same.
func versionOf(live client.Object) string {
	if live == nil {
		return ""
	}
	return live.GetResourceVersion()
}

// settled reports whether live is known to hold the intent.
func (e *Engine) settled(live client.Object, in *intent) bool {
	e.mu.Lock()
	known := e.verified[in.key]
	e.mu.Unlock()
	if known == (verified{uid: live.GetUID(), version: live.GetResourceVersion(), hash: in.hash}) {
		return true
	}
	return live.GetAnnotations()[ownership.AnnotationApplied] == in.hash && in.heldBy(live)
}
