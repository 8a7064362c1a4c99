// Package apply is the engine: the only code that writes the objects of a cluster.
//
// It creates what is missing, applies server-side what differs, prunes what is no longer wanted and deletes in order. It
// never touches an object that is not owned (annotation kvm-operator.giantswarm.io/owner, in one of the owner's Places) and
// asks the API server nothing while intent and world agree.
package apply

import (
	"context"
	"errors"
	"sync"

	"github.com/giantswarm/microerror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/problem"
)

// Set is what one handler wants to exist for one owner.
type Set struct {
	// Owner is whom all objects of the set belong to, which they say.
	Owner key.Owner
	// Places are where objects are looked for that are no longer wanted.
	Places Places
	// Objects are applied in this order.
	Objects []client.Object
	// Keep are objects that are neither changed nor pruned.
	Keep []client.Object
	// Kinds are the kinds among which no longer wanted objects are looked for; none means no pruning.
	Kinds []client.Object
	// CreateOnly never changes an object that exists, for it holds something that cannot be made a second time, such as a key. Only an
	// object that says which resource version it was made for replaces that one.
	CreateOnly bool
	// Created is told of each object that was created, as the API server answered; may be nil.
	Created func(client.Object)
}

// Engine applies Sets. It is safe for concurrent use.
type Engine struct {
	// client reads from informers and writes to the API server.
	client client.Client
	// live reads from the API server.
	live client.Reader

	clock clock.PassiveClock

	mu       sync.Mutex
	verified map[objectKey]verified
	refused  map[objectKey]refused
}

// objectKey names an object of any kind.
type objectKey struct {
	kind string
	name types.NamespacedName
}

// New makes an Engine. c reads from informers that have the index IndexOwner and writes to the API server; live reads
// from the API server, which happens only when the two turn out to disagree. What is written says by the clock since when it is so.
func New(c client.Client, live client.Reader, now clock.PassiveClock) *Engine {
	return &Engine{client: c, live: live, clock: now, verified: map[objectKey]verified{}, refused: map[objectKey]refused{}}
}

// Apply brings the world to the set: objects first, then pruning. An object that cannot be applied does not hold up the
// others, but what exists is then not pruned; a lost race ends the call, for what the set was made from is outdated, and where objects are only
// created, the first error does, for what comes later builds on it.
// Errors that a person has to mend are problem.Problems.
func (e *Engine) Apply(ctx context.Context, set Set) error {
	var errs []error
	for _, desired := range set.Objects {
		err := e.applyOne(ctx, set, desired)
		if IsOutdated(err) || set.CreateOnly && err != nil {
			return microerror.Mask(err)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// Pruning does not wait for the cache to see what was just written, as a list otherwise does for the whole kind: what
	// is too new for the cache is wanted, and one cluster's writes would hold up all others.
	_, err := e.deleteOwned(ctx, "prune", property{set.Owner, set.Places, set.Kinds}, append(set.Objects, set.Keep...), client.DisableReadYourWritesConsistency)
	return err
}

// Delete deletes every object of the owner among the kinds that lies in one of the places, and returns those that still exist, as
// "Kind namespace/name".
func (e *Engine) Delete(ctx context.Context, owner key.Owner, places Places, kinds []client.Object) ([]string, error) {
	owned := property{owner, places, kinds}
	if remaining, err := e.deleteOwned(ctx, "delete", owned, nil); err != nil || len(remaining) == 0 {
		return nil, err
	}
	return e.deleteOwned(ctx, "delete", owned, nil)
}

func (e *Engine) applyOne(ctx context.Context, set Set, desired client.Object) error {
	intent, err := e.newIntent(desired, set.Owner)
	if err != nil {
		return microerror.Mask(err)
	}
	intent.created = set.Created
	if err := e.refusal(intent); err != nil {
		return err
	}
	err = e.reconcileOne(ctx, set, intent)
	e.noteRefusal(intent, err)
	return err
}

// reconcileOne creates what is missing and updates what differs.
func (e *Engine) reconcileOne(ctx context.Context, set Set, intent *intent) error {
	live, err := e.read(ctx, e.client, intent.object)
	if err != nil {
		return requestError("read", intent.ref, err)
	}
	unseen := false
	if live == nil && intent.object.GetResourceVersion() != "" {
		return outdatedf("%s is gone", intent.ref)
	}
	if live == nil {
		live, err = e.create(ctx, intent)
		if err != nil || live == nil {
			return err
		}
		unseen = true
	}
	if err := adoptable(live, intent, set.Places.Former); err != nil {
		return err
	}
	if set.CreateOnly && unseen {
		return outdatedf("%s exists already", intent.ref)
	}
	if live.GetDeletionTimestamp() != nil {
		return problem.Newf("Terminating", "%s is being deleted; the operator creates it again when it is gone", intent.ref)
	}
	if set.CreateOnly {
		return errors.Join(e.replace(ctx, live, intent), e.remark(ctx, live, intent))
	}
	if e.settled(live, intent) {
		return nil
	}
	return e.update(ctx, live, intent)
}

// read gets the object that desired names, or nil when there is none.
func (e *Engine) read(ctx context.Context, reader client.Reader, desired client.Object) (client.Object, error) {
	gvk, err := apiutil.GVKForObject(desired, e.client.Scheme())
	if err != nil {
		return nil, err
	}
	empty, err := e.client.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	live := empty.(client.Object)
	err = reader.Get(ctx, client.ObjectKeyFromObject(desired), live)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

// create posts the intent. When the object turns out to exist, unseen by the cache, it is returned for the caller to
// judge: an apply request instead of a post would have taken it over, whoever owns it.
func (e *Engine) create(ctx context.Context, in *intent) (client.Object, error) {
	posted := in.object.DeepCopyObject().(client.Object)
	err := e.client.Create(ctx, posted, client.FieldOwner(key.Operator))
	if apierrors.IsAlreadyExists(err) {
		live, err := e.read(ctx, e.live, in.object)
		if err == nil && live == nil {
			return nil, outdatedf("%s is gone again", in.ref)
		}
		return live, requestError("read", in.ref, err)
	}
	if err := wrote(ctx, "create", in.ref, err, by(in.owner)...); err != nil {
		return nil, err
	}
	e.remember(posted, in)
	if in.created != nil {
		in.created(posted)
	}
	return nil, nil
}
