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
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// act does what was decided. It may do everything twice: an operator that restarts in between decides the same again,
// and the release of a machine is recorded only after its runner has been told.
func (r *Reconciler) act(ctx context.Context, pod *corev1.Pod, config *v1alpha1.KVMConfig, m drain.Machine, d drain.Decision) error {
	if d.Finish {
		return r.engine.RemovePodFinalizer(ctx, pod, key.FinalizerDrainer)
	}
	refusals, err := r.empty(ctx, config, m.Node, d)
	if err != nil || m.LetGo != "" {
		return err
	}
	if d.Sudden(m) && !drain.Certain(pod) {
		if err := r.say(ctx, pod, config, held(string(drain.Releasing), d.Message)); err != nil {
			return err
		}
	}
	said := held(string(d.Reason), d.Message+refusals)
	if !d.Release && m.Master && drain.Certain(pod) {
		// The other masters rely on this condition: this master may be gone.
		said.Reason = drain.Condition(pod).Reason
	}
	if d.Release {
		said.Status = corev1.ConditionTrue
		if err = r.release(ctx, pod); err != nil {
			said = held(string(drain.ReleaseFailed),
				fmt.Sprintf("%s; the runner cannot be told to power the machine down: %s", d.Message, joining.Steady(err.Error())))
		}
	}
	return errors.Join(err, r.say(ctx, pod, config, said))
}

// release tells the runner to shut the machine down. It has a timeout so that a host that does not respond does not
// hold up other pods.
func (r *Reconciler) release(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	return r.Release(ctx, pod.Namespace, pod.Name)
}

// announce announces the release of a master to the reconciles that decide on other masters, decides again with data of
// the API server, and makes the release certain, see drain.Stays. Any other condition withdraws the announcement; act
// writes it.
func (r *Reconciler) announce(ctx context.Context, pod *corev1.Pod, config *v1alpha1.KVMConfig) (drain.Machine, drain.Decision, error) {
	if !drain.Certain(pod) {
		announcement := held(string(drain.LettingGo), "this master is about to be released; the operator checks that the other masters stay")
		if err := r.say(ctx, pod, config, announcement); err != nil {
			return drain.Machine{}, drain.Decision{}, err
		}
	}
	// The release may have been certain for a long time, because the host of the pod did not respond.
	if !r.askEtcd(ctx, config) {
		return drain.Machine{}, drain.Decision{}, errUnasked
	}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		return drain.Machine{}, drain.Decision{}, err
	}
	if !drain.Leaving(pod) {
		return drain.Machine{}, drain.Decision{}, errTakenBack
	}
	machine, err := r.look(ctx, pod, config, r.Live)
	decision := drain.Decide(machine)
	if err != nil || !decision.Release || drain.Certain(pod) {
		return machine, decision, err
	}
	// This fails if another operator has withdrawn the announcement since the pod was read.
	releasing := held(string(drain.Releasing), "the other masters stay; the runner is told to power the machine down")
	if err := r.engine.SetPodConditionAsSeen(ctx, pod, releasing); err != nil {
		return machine, decision, err
	}
	note(pod, releasing)
	return machine, decision, nil
}

// askEtcd queries the state of the members because what is known of them may be a minute old. It returns false if they
// were not queried in time: their list may be changing just now, which takes longer than a pass may take.
func (r *Reconciler) askEtcd(ctx context.Context, config *v1alpha1.KVMConfig) bool {
	if r.Etcd == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return r.Etcd.Ask(ctx, client.ObjectKeyFromObject(config))
}

// errUnasked makes the controller retry.
var errUnasked = errors.New("the members of etcd have not been asked in time; it is tried again")

// errTakenBack makes the controller start over.
var errTakenBack = errors.New("another operator withdrew the announcement that the machine is released")

// empty cordons the Node and evicts the pods that have to go. It returns which pods cannot be evicted, and why, as the
// end of a sentence.
func (r *Reconciler) empty(ctx context.Context, config *v1alpha1.KVMConfig, node *corev1.Node, d drain.Decision) (string, error) {
	if !d.Cordon && len(d.Evict) == 0 {
		return "", nil
	}
	inside := r.engineOf(config)
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
			cordonErr = inside.Cordon(ctx, node)
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
		texts = append(texts, fmt.Sprintf("; not all evictions are answered within %s", emptyTimeout))
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
		return joining.Steady(err.Error())
	}
	text := status.Status().Message
	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			text += " " + cause.Message
		}
	}
	return joining.Steady(text)
}

// held returns the condition of a pod whose machine has not been released.
func held(reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: key.ConditionDrained, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

// note updates the pod in memory with what was written.
func note(pod *corev1.Pod, c corev1.PodCondition) {
	pod.Status.Conditions = append(slices.DeleteFunc(pod.Status.Conditions, func(old corev1.PodCondition) bool { return old.Type == c.Type }), c)
}

// say writes a condition to the pod, also in memory, if it differs, and an event if the reason differs.
func (r *Reconciler) say(ctx context.Context, pod *corev1.Pod, config *v1alpha1.KVMConfig, c corev1.PodCondition) error {
	c.Message = bounded(c.Message)
	before := drain.Condition(pod)
	if before.Status == c.Status && before.Reason == c.Reason && before.Message == c.Message {
		return nil
	}
	if err := r.engine.SetPodCondition(ctx, pod, c); err != nil {
		return err
	}
	note(pod, c)
	if before.Reason != c.Reason && config != nil && r.Events != nil {
		kind := corev1.EventTypeNormal
		if slices.Contains([]drain.Reason{drain.TimedOut, drain.GracePeriodOver, drain.NamespaceDeleted, drain.QuorumAtRisk, drain.ReleaseFailed}, drain.Reason(c.Reason)) {
			kind = corev1.EventTypeWarning
		}
		r.Events.Eventf(config, pod, kind, c.Reason, "Drain", "%s: %s", pod.Name, c.Message)
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
