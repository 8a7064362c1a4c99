// Package pod is the handler that drains a node pod, releases its machine and then lets the pod go.
package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// Drainer does what the handler decides. It may be asked for everything twice: an operator that restarts decides the
// same again.
type Drainer interface {
	// Finish removes the finalizer that keeps the pod.
	Finish(ctx context.Context, s *drain.State) error
	// Report writes the pod's condition if it differs, and an event if its reason differs.
	Report(ctx context.Context, s *drain.State, condition corev1.PodCondition) error
	// ReportAsSeen does the same, and fails if the pod has changed since it was read.
	ReportAsSeen(ctx context.Context, s *drain.State, condition corev1.PodCondition) error
	// Empty cordons the Node and evicts pods. It returns which pods cannot be evicted, and why, as the end of a
	// sentence.
	Empty(ctx context.Context, s *drain.State, d drain.Decision) (refusals string, err error)
	// Release tells the runner to shut the machine down.
	Release(ctx context.Context, s *drain.State) error
}

// ownerMissing is when the owner of the namespace is checked again. The cluster controller writes the owner again if it
// was removed.
const ownerMissing = 30 * time.Second

type handler struct{ drainer Drainer }

// New returns the handler.
func New(d Drainer) chain.Handler[*drain.State] { return handler{d} }

// Name returns the handler's name.
func (handler) Name() string { return "pod" }

// EnsureCreated takes the next step with the pod.
func (h handler) EnsureCreated(ctx context.Context, s *drain.State) (chain.Outcome, error) {
	if s.Unowned {
		return chain.Wait("NamespaceUnowned", "the pod's namespace has no owner annotation", ownerMissing), nil
	}
	d := drain.Decide(s.Machine)
	switch drain.Next(s.Pod, s.Machine, d) {
	case drain.StepFinish:
		return chain.Done(), h.drainer.Finish(ctx, s)
	case drain.StepAnnounce:
		return wait(d), h.drainer.ReportAsSeen(ctx, s, drain.Held(drain.ReleaseAnnounced, "this master is about to be released; the operator checks that etcd keeps quorum without it"))
	case drain.StepConfirm:
		return wait(d), h.confirm(ctx, s, d)
	case drain.StepRelease:
		return wait(d), h.release(ctx, s, d)
	case drain.StepHold:
		return wait(d), h.hold(ctx, s, d)
	case drain.StepWithdraw:
		return chain.Done(), h.drainer.ReportAsSeen(ctx, s, drain.Held(drain.HostStays, "the host of the pod no longer shuts down"))
	case drain.StepWait:
	}
	return wait(d), nil
}

// EnsureDeleted is never called, because the chain always runs forward.
func (handler) EnsureDeleted(context.Context, *drain.State) (chain.Outcome, error) {
	return chain.Done(), nil
}

func wait(d drain.Decision) chain.Outcome { return chain.Wait(string(d.Reason), d.Message, d.After) }

// confirm records that the release of a master is confirmed before its runner gets the order. A host that shuts down does not
// wait, and its kubelet changes the pod at the same time, so there the record does not depend on what was seen.
func (h handler) confirm(ctx context.Context, s *drain.State, d drain.Decision) error {
	said, write := drain.Held(drain.Releasing, "etcd does not need this master for quorum; the operator asks the runner to power the machine down"), h.drainer.ReportAsSeen
	if d.IgnoresQuorum(s.Machine) {
		said.Message, write = d.Message, h.drainer.Report
	}
	if err := write(ctx, s, said); err != nil {
		return err
	}
	return h.release(ctx, s, d)
}

// hold empties the Node and reports what is waited for. For a master, a report on outdated information must not take
// the place of the record that its release is confirmed, because the other masters rely on that.
func (h handler) hold(ctx context.Context, s *drain.State, d drain.Decision) error {
	var refusals string
	if d.Cordon || len(d.Evict) > 0 {
		var err error
		if refusals, err = h.drainer.Empty(ctx, s, d); err != nil {
			return err
		}
	}
	said := drain.Held(d.Reason, d.Message+refusals)
	if s.Machine.Master && drain.Confirmed(s.Pod) {
		// This master may be gone.
		said.Reason = drain.Condition(s.Pod).Reason
	}
	if s.Machine.Master {
		return h.drainer.ReportAsSeen(ctx, s, said)
	}
	return h.drainer.Report(ctx, s, said)
}

// release records the release of a machine only after its runner has got the order.
func (h handler) release(ctx context.Context, s *drain.State, d drain.Decision) error {
	err := h.drainer.Release(ctx, s)
	said := drain.Held(d.Reason, d.Message)
	said.Status = corev1.ConditionTrue
	if err != nil {
		said = drain.Held(drain.ReleaseFailed,
			fmt.Sprintf("%s; asking the runner to power the machine down failed: %s", d.Message, text.Steady(err.Error())))
	}
	return errors.Join(err, h.drainer.Report(ctx, s, said))
}
