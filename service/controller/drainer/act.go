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
	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/drain"
	"github.com/kvm-operator/kvm-operator/pkg/joining"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// act does what was decided. What it does may be done twice: an operator that ends in between decides the same again, and
// that the machine was let go is written down only once its runner knows.
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
		// The others count on it that this one may be gone.
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

// release tells the runner. A host that does not answer must not keep others waiting.
func (r *Reconciler) release(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	return r.Release(ctx, pod.Namespace, pod.Name)
}

// announce tells whoever decides on another master that this one goes, decides once more, on what the API server knows, and makes it
// certain, see drain.Stays. An announcement is taken back by saying anything else, which act does.
func (r *Reconciler) announce(ctx context.Context, pod *corev1.Pod, config *v1alpha1.KVMConfig) (drain.Machine, drain.Decision, error) {
	if !drain.Certain(pod) {
		announcement := held(string(drain.LettingGo), "this master is about to be released; the operator checks that the other masters stay")
		if err := r.say(ctx, pod, config, announcement); err != nil {
			return drain.Machine{}, drain.Decision{}, err
		}
	}
	// One that is certain to go may have been so for long: its host did not answer.
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
	// Nobody has taken the announcement back since the pod was read, or this fails.
	releasing := held(string(drain.Releasing), "the other masters stay; the runner is told to power the machine down")
	if err := r.engine.SetPodConditionAsSeen(ctx, pod, releasing); err != nil {
		return machine, decision, err
	}
	note(pod, releasing)
	return machine, decision, nil
}

// askEtcd has the members be asked how they are: what they have said last may be a minute ago. It says whether they were: their list may be
// being changed, which takes longer than a pass may.
func (r *Reconciler) askEtcd(ctx context.Context, config *v1alpha1.KVMConfig) bool {
	if r.Etcd == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return r.Etcd.Ask(ctx, client.ObjectKeyFromObject(config))
}

// errUnasked makes the controller come back.
var errUnasked = errors.New("the members of etcd have not been asked in time; it is tried again")

// errTakenBack makes the controller begin anew.
var errTakenBack = errors.New("another operator withdrew the announcement that the machine is released")

// empty keeps new pods away from the Node and asks those to go that are to be evicted. It returns who refuses, and why, as the end
// of a sentence.
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
	// Whoever refuses it, or takes his time, must not keep pods from being asked to go.
	select {
	case <-cordoned:
	case <-time.After(cordonFirst):
	}
	answers := evict(ctx, d.Evict, inside.Evict)
	<-cordoned
	return refusals(cordonErr, d.Evict, answers), nil
}

// evict asks pods to go and returns what each is answered. One whose admission takes long must not keep others waiting, nor be asked
// first each time.
func evict(ctx context.Context, pods []corev1.Pod, ask func(context.Context, *corev1.Pod) error) []error {
	answers := make([]error, len(pods))
	var asked errgroup.Group
	asked.SetLimit(evictionsAtOnce)
	for _, at := range rand.Perm(len(pods)) { //nolint:gosec // the order is no secret
		asked.Go(func() error {
			answers[at] = ask(ctx, &pods[at])
			return nil
		})
	}
	_ = asked.Wait() // what they are answered is in the list
	return answers
}

// refusals tells who refuses, and why. It is the same text as long as they do.
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

// mostRefusals is how many are told.
const mostRefusals = 3

// errLost makes the controller come back soon: then the cluster is one that does not answer.
var errLost = errors.New("the connection to the workload cluster was lost")

// engineOf is what writes to the workload cluster; nil while it cannot be reached.
func (r *Reconciler) engineOf(config *v1alpha1.KVMConfig) *apply.Engine {
	if seen := r.Pool.Get(client.ObjectKeyFromObject(config)); seen != nil {
		if engine, connected := seen.Engine(); connected {
			return engine
		}
	}
	return nil
}

// reason is why a pod cannot be evicted: what the API server says, with the budget that is in the way.
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

// held is the condition of a pod whose machine has not been let go.
func held(reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: key.ConditionDrained, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

// note keeps in mind what was written.
func note(pod *corev1.Pod, c corev1.PodCondition) {
	pod.Status.Conditions = append(slices.DeleteFunc(pod.Status.Conditions, func(old corev1.PodCondition) bool { return old.Type == c.Type }), c)
}

// say writes a condition to the pod, which has it then, when it differs, and an event when the reason does.
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

// mostMessage is how long a message is at most, in bytes. Names in it come from the workload cluster, whose API server may send any.
const mostMessage = 1024

func bounded(text string) string {
	if len(text) <= mostMessage {
		return text
	}
	return strings.ToValidUTF8(text[:mostMessage], "") + "…"
}
