package drainer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/drain"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// act does what was decided. What it does may be done twice: an operator that ends in between decides the same again, and
// that the machine was let go is written down only once its runner knows.
func (r *Reconciler) act(ctx context.Context, pod *corev1.Pod, config *v1alpha1.KVMConfig, m drain.Machine, d drain.Decision) error {
	if d.Finish {
		return r.engine.RemovePodFinalizer(ctx, pod, key.FinalizerDrainer)
	}
	if d.Cordon || len(d.Evict) > 0 {
		inside := r.engineOf(config)
		if inside == nil {
			return nil // the cluster was lost in this moment; it is looked at again
		}
		if d.Cordon {
			if err := inside.Cordon(ctx, m.Node); err != nil {
				return err
			}
		}
		refusals, err := evict(ctx, inside, d.Evict)
		if err != nil {
			return err
		}
		if refusals != "" {
			d.Message += "; " + refusals
		}
	}
	if d.Release {
		if err := r.Release(ctx, pod.Namespace, pod.Name); err != nil {
			return r.say(ctx, pod, config, condition(corev1.ConditionFalse, "ReleaseFailed",
				fmt.Sprintf("%s; the runner cannot be told to power the machine down: %s", d.Message, err)), err)
		}
	}
	if m.LetGo != "" {
		return nil
	}
	status := corev1.ConditionFalse
	if d.Release {
		status = corev1.ConditionTrue
	}
	return r.say(ctx, pod, config, condition(status, string(d.Reason), d.Message), nil)
}

// engineOf is what writes to the workload cluster; nil while it cannot be reached.
func (r *Reconciler) engineOf(config *v1alpha1.KVMConfig) *apply.Engine {
	if seen := r.Pool.Get(client.ObjectKeyFromObject(config)); seen != nil {
		if engine, connected := seen.Engine(); connected {
			return engine
		}
	}
	return nil
}

// evict asks pods to go and tells who refuses, and why.
func evict(ctx context.Context, inside *apply.Engine, pods []corev1.Pod) (refusals string, err error) {
	var refused []string
	for i := range pods {
		err := inside.Evict(ctx, &pods[i])
		switch {
		case apierrors.IsTooManyRequests(err):
			refused = append(refused, fmt.Sprintf("%s/%s: %s", pods[i].Namespace, pods[i].Name, reason(err)))
		case err != nil:
			return "", err
		}
	}
	const most = 3
	if len(refused) > most {
		refused = append(refused[:most], fmt.Sprintf("and %d more", len(refused)-most))
	}
	return strings.Join(refused, "; "), nil
}

// reason is what the API server says of an eviction that it refuses, with the budget that is in the way.
func reason(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error()
	}
	text := status.Status().Message
	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			text += " " + cause.Message
		}
	}
	return text
}

func condition(status corev1.ConditionStatus, reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: key.ConditionDrained, Status: status, Reason: reason, Message: message}
}

// say writes a condition to the pod when it differs, and an event when the reason does. It returns cause, if there is one.
func (r *Reconciler) say(ctx context.Context, pod *corev1.Pod, config *v1alpha1.KVMConfig, c corev1.PodCondition, cause error) error {
	before := corev1.PodCondition{}
	for _, known := range pod.Status.Conditions {
		if known.Type == c.Type {
			before = known
		}
	}
	if before.Status == c.Status && before.Reason == c.Reason && before.Message == c.Message {
		return microerror.Mask(cause)
	}
	if err := r.engine.SetPodCondition(ctx, pod, c); err != nil {
		return err
	}
	if before.Reason != c.Reason && config != nil && r.Events != nil {
		kind := corev1.EventTypeNormal
		if c.Reason == string(drain.TimedOut) || cause != nil {
			kind = corev1.EventTypeWarning
		}
		r.Events.Eventf(config, pod, kind, c.Reason, "Drain", "%s: %s", pod.Name, c.Message)
	}
	return microerror.Mask(cause)
}
