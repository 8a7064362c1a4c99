package reconciler

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// ConditionWriter writes a condition by server-side apply with the named field owner, and removes one regardless of its
// field owners.
type ConditionWriter interface {
	SetConditionsAs(ctx context.Context, owner string, object client.Object, conditions ...metav1.Condition) error
	DropCondition(ctx context.Context, owner string, object client.Object, conditions []metav1.Condition, name string) error
}

// OwnCondition is the one condition that a controller writes to an object whose status belongs to another controller.
// The condition exists only while there is something to report, so that a healthy object costs no write.
type OwnCondition struct {
	// Type is the condition's type, and Owner the field owner.
	Type, Owner string
	Writer      ConditionWriter
	Clock       clock.PassiveClock
}

// Store folds the results and writes the condition if it differs from that of the object.
func (o OwnCondition) Store(ctx context.Context, object client.Object, there []metav1.Condition, results []chain.Result) error {
	before := meta.FindStatusCondition(there, o.Type)
	wanted, ok := Condition(o.Type, results)
	if !ok || wanted.Status == metav1.ConditionTrue && wanted.Message == "" {
		if before == nil {
			return nil
		}
		log.FromContext(ctx).Info("condition removed", "type", o.Type)
		return o.Writer.DropCondition(ctx, o.Owner, object, there, o.Type)
	}
	wanted.ObservedGeneration, wanted.LastTransitionTime = object.GetGeneration(), metav1.NewTime(o.Clock.Now())
	if before != nil && before.Status == wanted.Status {
		wanted.LastTransitionTime = before.LastTransitionTime
	}
	if before != nil && *before == wanted {
		return nil
	}
	if before == nil || before.Status != wanted.Status || before.Reason != wanted.Reason {
		log.FromContext(ctx).Info("condition changed", "type", o.Type, "status", wanted.Status, "reason", wanted.Reason, "message", wanted.Message)
	}
	return o.Writer.SetConditionsAs(ctx, o.Owner, object, wanted)
}
