// Package apply is the engine: the only code that writes the objects of a cluster.
//
// It creates missing objects, uses server-side apply for objects that differ, prunes objects that are no longer wanted
// and deletes in order. It never touches an object that is not owned (annotation kvm-operator.giantswarm.io/owner, in
// one of the owner's Places) and sends no request while the actual state matches the intent.
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

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/hold"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// Set is the objects that one handler wants to exist for one owner.
type Set struct {
	// Owner is the owner of all objects of the set; their annotations name it.
	Owner ownership.Owner
	// Places are where the engine searches for objects that are no longer wanted.
	Places Places
	// Objects are applied in this order.
	Objects []client.Object
	// Keep are objects that are neither changed nor pruned.
	Keep []client.Object
	// Kinds are the kinds that are pruned; none means no pruning.
	Kinds []client.Object
	// CreateOnly never changes an existing object, because it holds something that cannot be recreated,
	// such as a key. The exception is an object that names a resource version: it replaces that version.
	CreateOnly bool
	// Created is called with each created object as the API server returned it; may be nil.
	Created func(client.Object)
	// Applied is called with each existing object once it was updated to the intent, as the API server returned it; may
	// be nil. An object that had to be deleted and created again is Created.
	Applied func(client.Object)
}

// Engine applies Sets. It is safe for concurrent use.
type Engine struct {
	// Adopts is set before the first Apply; nil adopts nothing.
	Adopts Adoption

	// client reads from informers and writes to the API server.
	client client.Client
	// live reads from the API server.
	live client.Reader

	clock clock.PassiveClock

	mu       sync.Mutex
	verified map[objectKey]verified
	made     map[objectKey]made

	refused  hold.Held[objectKey, refused]
	contests hold.Held[objectKey, contest]
	words    words
}

// verbPrune is the verb with which objects are deleted that are no longer wanted, and verbEnd that with which exactly
// one is that has done its work.
const verbPrune, verbEnd = "prune", "end"

// objectKey identifies an object of any kind.
type objectKey struct {
	kind string
	name types.NamespacedName
}

// New creates an Engine. c reads from informers that have the index IndexOwner and writes to the API server; live reads
// from the API server, which happens only if the two turn out to disagree. now provides the timestamps in what the
// engine writes.
func New(c client.Client, live client.Reader, now clock.PassiveClock) *Engine {
	return &Engine{client: c, live: live, clock: now, verified: map[objectKey]verified{}, made: map[objectKey]made{}}
}

// Apply makes the actual state match the set: it applies objects first, then prunes. An object that cannot be applied
// does not block the others, but then nothing is pruned. A lost race ends the call, because the set was computed from
// outdated objects. With CreateOnly the first error ends the call, because later objects depend on earlier ones. Errors
// that a person has to fix are problem.Problems.
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
	// Pruning does not wait until the cache has seen recent writes, as lists of a whole kind otherwise do: an object
	// that is too new for the cache is wanted, and the writes of one cluster would delay all others.
	_, err := e.deleteOwned(ctx, verbPrune, property{set.Owner, set.Places, set.Kinds}, append(set.Objects, set.Keep...), client.DisableReadYourWritesConsistency)
	return err
}

// Delete deletes every object of the owner, of the given kinds and in one of the places. It returns those that still
// exist, as "Kind namespace/name".
func (e *Engine) Delete(ctx context.Context, owner ownership.Owner, places Places, kinds []client.Object) ([]string, error) {
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
	intent.created, intent.applied = set.Created, set.Applied
	if err := e.refusal(ctx, intent); err != nil {
		return err
	}
	err = e.reconcileOne(ctx, set, intent)
	e.noteRefusal(intent, err)
	return err
}

// reconcileOne creates the object if it is missing and updates it if it differs.
func (e *Engine) reconcileOne(ctx context.Context, set Set, intent *intent) error {
	live, err := e.read(ctx, e.client, intent.object)
	if err != nil {
		return requestError("read", intent.ref, err)
	}
	intent.seen = versionOf(live)
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
	if err := e.adoptable(live, intent, set.Places.Former); err != nil {
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
	if err := intent.merge(live); err != nil {
		return microerror.Mask(err)
	}
	if !e.recreates(live, intent) && e.settled(live, intent) {
		return nil
	}
	return e.correct(ctx, live, intent)
}

// read returns the object that desired names, or nil if there is none.
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

// create posts the intent. If the object turns out to exist, unseen by the cache, create returns it for the caller to
// check: an apply request instead of a post would have taken it over, regardless of its owner.
func (e *Engine) create(ctx context.Context, in *intent) (client.Object, error) {
	if err := e.inContest(in); err != nil {
		return nil, err
	}
	posted := in.object.DeepCopyObject().(client.Object)
	err := e.client.Create(ctx, posted, client.FieldOwner(ownership.Operator))
	if apierrors.IsAlreadyExists(err) {
		live, err := e.read(ctx, e.live, in.object)
		if err == nil && live == nil {
			return nil, outdatedf("%s is gone again", in.ref)
		}
		return live, requestError("read", in.ref, err)
	}
	if err := e.wrote(ctx, "create", in.ref, err, by(in.owner)...); err != nil {
		return nil, err
	}
	e.countDeleted(in)
	e.rememberMade(posted, in)
	if in.created != nil {
		in.created(posted)
	}
	return nil, nil
}
