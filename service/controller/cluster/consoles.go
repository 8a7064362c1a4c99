package cluster

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/hold"
)

const (
	// consoleTimeout is the timeout for one console, and consolesTimeout for all of them, so that hosts that do not
	// respond do not prevent the status from being written. consolesAtOnce is how many are read at a time.
	consoleTimeout, consolesTimeout = 3 * time.Second, 10 * time.Second
	consolesAtOnce                  = 16
)

// showConsoles adds the end of its console to each node that hangs, once. A console that cannot be read is requested
// again in a later reconcile, in another order.
func (r *Reconciler) showConsoles(ctx context.Context, id string, nodes []v1alpha1.NodeStatus) {
	ctx, cancel := context.WithTimeout(ctx, consolesTimeout)
	defer cancel()
	var asked errgroup.Group
	asked.SetLimit(consolesAtOnce)
	now := r.Clock.Now()
	for _, i := range rand.Perm(len(nodes)) { //nolint:gosec // the order is not secret
		n := &nodes[i]
		if r.Console == nil || n.Console != "" || n.Pod == "" || n.Since == nil {
			continue
		}
		pod, hung := types.NamespacedName{Namespace: key.Namespace(id), Name: n.Pod}, now.Sub(n.Since.Time)
		if _, rests := r.silent.Get(pod, now); rests > 0 || !nodestep.Hangs(nodestep.Name(n.Step), hung) {
			continue
		}
		asked.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, consoleTimeout)
			defer cancel()
			text, err := r.Console(ctx, pod.Namespace, pod.Name)
			if err == nil {
				n.Console = strings.ToValidUTF8(text, "?")
			}
			if ctx.Err() != nil {
				r.silent.Put(pod, struct{}{}, now, hung/hungPerRest)
			}
			return nil
		})
	}
	_ = asked.Wait() // the functions return no errors
}

const (
	// mostConsoles is how many bytes the consoles of all nodes take in the status at most, as JSON, in which a byte that a
	// guest has printed may take six. The consoles of 500 nodes that hang would not fit into an object, and a status that is
	// refused stores nothing else either.
	mostConsoles = 256 << 10
	// unshown takes the place of a console that does not fit, so that it is not requested again.
	unshown = "(not shown, because the consoles of other nodes fill the status: kubectl logs of the pod shows it)"
)

// boundConsoles replaces the consoles that do not fit. Those of the first nodes stay.
func boundConsoles(nodes []v1alpha1.NodeStatus) {
	left := mostConsoles
	for i := range nodes {
		n := &nodes[i]
		if n.Console == "" || n.Console == unshown {
			continue
		}
		encoded, err := json.Marshal(n.Console)
		if err != nil || len(encoded) > left {
			n.Console = unshown
			continue
		}
		left -= len(encoded)
	}
}

// hungPerRest: a console that did not come in time is not requested again for the time for which its node has hung,
// divided by hungPerRest. A host that is dead stays so for long, and each wait for it keeps a worker from other
// clusters.
const hungPerRest = 4

// silence has the pods that did not respond in time; each is skipped for some time.
type silence = hold.Held[types.NamespacedName, struct{}]
