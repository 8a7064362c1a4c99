package drainer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// actor does what the handler "pod" decides.
type actor struct{ *Reconciler }

// Finish lets the pod go.
func (r actor) Finish(ctx context.Context, s *drain.State) error {
	return r.engine.RemovePodFinalizer(ctx, s.Pod, key.FinalizerDrainer)
}

// Release tells the runner to shut the machine down. It has a timeout so that a host that does not respond does not
// hold up other pods.
func (r actor) Release(ctx context.Context, s *drain.State) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	return r.Reconciler.Release(ctx, s.Pod.Namespace, s.Pod.Name)
}

// Empty cordons the Node and evicts the pods that have to go.
func (r actor) Empty(ctx context.Context, s *drain.State, d drain.Decision) (string, error) {
	inside := r.engineOf(s.Config)
	if inside == nil {
		return "", errLost
	}
	ctx, cancel := context.WithTimeout(ctx, emptyTimeout)
	defer cancel()
	var cordonErr error
	cordoned := make(chan struct{})
	go func() {
		defer close(cordoned)
		if d.Cordon {
			cordonErr = inside.Cordon(ctx, s.Machine.Node)
		}
	}()
	// A cordon that is refused or slow must not prevent evictions.
	select {
	case <-cordoned:
	case <-time.After(cordonFirst):
	}
	answers := evict(ctx, d.Evict, inside.Evict)
	<-cordoned
	return refusals(cordonErr, d.Evict, answers), nil
}

// evict evicts pods and returns the result of each. It does so concurrently and in random order, so that a pod whose
// admission takes long neither holds up others nor comes first each time.
func evict(ctx context.Context, pods []corev1.Pod, ask func(context.Context, *corev1.Pod) error) []error {
	answers := make([]error, len(pods))
	var asked errgroup.Group
	asked.SetLimit(evictionsAtOnce)
	for _, at := range rand.Perm(len(pods)) { //nolint:gosec // the order is not secret
		asked.Go(func() error {
			answers[at] = ask(ctx, &pods[at])
			return nil
		})
	}
	_ = asked.Wait() // the results are in the list
	return answers
}

// refusals returns what was refused, and why. The text does not change as long as the refusals do not.
func refusals(cordon error, pods []corev1.Pod, answers []error) string {
	var texts []string
	if cordon != nil {
		texts = append(texts, "; its Node cannot be cordoned: "+reason(cordon))
	}
	late := false
	for i, err := range answers {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			late = true
		case err != nil:
			texts = append(texts, fmt.Sprintf("; %s/%s: %s", pods[i].Namespace, pods[i].Name, reason(err)))
		}
	}
	if len(texts) > mostRefusals {
		texts = append(texts[:mostRefusals], fmt.Sprintf("; and %d more", len(texts)-mostRefusals))
	}
	if late {
		texts = append(texts, fmt.Sprintf("; not all evictions were answered within %s", emptyTimeout))
	}
	return strings.Join(texts, "")
}

// mostRefusals is how many refusals are reported.
const mostRefusals = 3

// errLost makes the controller retry soon: by then the cluster counts as one that does not respond.
var errLost = errors.New("the connection to the workload cluster was lost")

// engineOf returns the engine that writes to the workload cluster; nil while the cluster cannot be reached.
func (r *Reconciler) engineOf(config *v1alpha1.KVMConfig) *apply.Engine {
	if seen := r.Pool.Get(client.ObjectKeyFromObject(config)); seen != nil {
		if engine, connected := seen.Engine(); connected {
			return engine
		}
	}
	return nil
}

// reason returns why a pod cannot be evicted: the API server's message, with the PodDisruptionBudget that prevents it.
func reason(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return text.Steady(err.Error())
	}
	message := status.Status().Message
	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			message += " " + cause.Message
		}
	}
	return text.Steady(message)
}

// Report writes the pod's condition if it differs, and an event if its reason differs.
func (r actor) Report(ctx context.Context, s *drain.State, c corev1.PodCondition) error {
	return r.say(ctx, s, c, r.engine.SetPodCondition)
}

// ReportAsSeen does the same, and fails if the pod has changed since it was read.
func (r actor) ReportAsSeen(ctx context.Context, s *drain.State, c corev1.PodCondition) error {
	return r.say(ctx, s, c, r.engine.SetPodConditionAsSeen)
}

// warned are the reasons that an administrator should know of.
var warned = []drain.Reason{drain.TimedOut, drain.GracePeriodOver, drain.NamespaceDeleted, drain.QuorumAtRisk, drain.ReleaseFailed}

func (r actor) say(ctx context.Context, s *drain.State, c corev1.PodCondition, write func(context.Context, *corev1.Pod, corev1.PodCondition) error) error {
	c.Message = bounded(c.Message)
	before := drain.Condition(s.Pod)
	if before.Status == c.Status && before.Reason == c.Reason && before.Message == c.Message {
		return nil
	}
	if err := write(ctx, s.Pod, c); err != nil {
		return err
	}
	if before.Reason != c.Reason && s.Config != nil && r.Events != nil {
		kind := corev1.EventTypeNormal
		if slices.Contains(warned, drain.Reason(c.Reason)) {
			kind = corev1.EventTypeWarning
		}
		r.Events.Eventf(s.Config, s.Pod, kind, c.Reason, "Drain", "%s: %s", s.Pod.Name, c.Message)
	}
	return nil
}

// mostMessage is the maximum length of a message in bytes. It has names from the workload cluster, whose API server may
// send names of any length.
const mostMessage = 1024

func bounded(text string) string {
	if len(text) <= mostMessage {
		return text
	}
	return strings.ToValidUTF8(text[:mostMessage], "") + "…"
}
