package smolvmruntime

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// drainTime bounds how long machines may take to power down when the runtime is removed.
const drainTime = 45 * time.Second

// ending is what happens to the machines when the agent ends.
type ending string

const (
	// machinesStay is for updates, crashes and evictions: the next agent finds them running.
	machinesStay ending = "stay"
	// machinesStop is for the removal of the runtime: no other one would manage them.
	machinesStop ending = "stop"
)

// daemonSet is what an agent knows of its DaemonSet at its end.
type daemonSet struct {
	// known is the UID that it had when the agent last saw it; empty if the agent never did.
	known types.UID
	// asked says that the API server has answered at the end.
	asked bool
	// found is the UID of the DaemonSet at the end; empty if there is none.
	found types.UID
	// deleting is set while it is being deleted.
	deleting bool
}

// decideEnd decides about the machines, and says why. They stop only if the DaemonSet is certainly gone or going. One that
// was never seen may be called otherwise, so its absence says nothing. One of another UID was made after the agent's own, and
// is wanted.
func decideEnd(d daemonSet) (ending, string) {
	switch {
	case !d.asked:
		return machinesStay, "the API server does not say whether the DaemonSet still exists"
	case d.known == "":
		return machinesStay, "the DaemonSet was never seen"
	case d.found == "":
		return machinesStop, "the DaemonSet is gone"
	case d.deleting:
		return machinesStop, "the DaemonSet is being deleted"
	}
	return machinesStay, "the DaemonSet is still there"
}

// owner watches over the agent's DaemonSet.
type owner struct {
	client          client.Reader
	namespace, name string
	known           types.UID
}

// Look remembers the DaemonSet, once.
func (o *owner) Look(ctx context.Context) error {
	if o.known != "" {
		return nil
	}
	seen, err := o.ask(ctx)
	if err == nil && seen.found == "" {
		err = fmt.Errorf("there is no DaemonSet %s/%s", o.namespace, o.name)
	}
	if err == nil && !seen.deleting {
		o.known = seen.found
	}
	return err
}

// AtEnd returns what is known of the DaemonSet now. An error says that the API server does not tell.
func (o *owner) AtEnd(ctx context.Context) (daemonSet, error) {
	seen, err := o.ask(ctx)
	seen.known = o.known
	return seen, err
}

func (o *owner) ask(ctx context.Context) (daemonSet, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	set := &appsv1.DaemonSet{}
	err := o.client.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: o.name}, set)
	switch {
	case apierrors.IsNotFound(err):
		return daemonSet{asked: true}, nil
	case err != nil:
		return daemonSet{}, fmt.Errorf("reading DaemonSet %s/%s: %w", o.namespace, o.name, err)
	}
	return daemonSet{asked: true, found: set.UID, deleting: set.DeletionTimestamp != nil}, nil
}
