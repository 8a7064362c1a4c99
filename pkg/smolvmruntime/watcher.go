package smolvmruntime

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// nodeInterval is the time between two reads of the Node, whose labels are copied.
const nodeInterval = 20 * time.Second

// watcher checks smolvm and the node, tells the node API what it sees, and reports it.
type watcher struct {
	agent    *Agent
	port     int32
	prober   *prober
	reporter *reporter

	// node is the Node that was read last; nil if there is none. asked says that it has been read.
	node    *corev1.Node
	asked   bool
	nodeAt  time.Time
	trouble map[string]string

	storage   int64
	storageAt time.Time
	// answered is when smolvm last answered, or was started or replaced.
	answered time.Time
}

func newWatcher(a *Agent, port int32) *watcher {
	return &watcher{
		agent: a, port: port, trouble: map[string]string{}, answered: a.now(),
		prober:   &prober{smolvm: a.smolvm, state: a.settings.State, emulation: a.settings.AllowEmulation, device: openKVM, reason: a.supervisor.Reason},
		reporter: &reporter{client: a.client, name: a.settings.Node, interval: a.settings.ReportInterval},
	}
}

// Look looks once.
func (w *watcher) Look(ctx context.Context) {
	now := w.agent.now()
	w.agent.identity.Refresh(now)
	w.agent.meters.ends.Set(float64(w.agent.identity.Ends().Unix()))
	observed := w.prober.observe(ctx)
	w.noteSilence(observed.silence != "", now)
	if w.nodeAt.IsZero() || now.Sub(w.nodeAt) >= nodeInterval {
		w.nodeAt = now
		w.note("node", w.readNode(ctx))
		w.note("owner", w.agent.lookAtOwner(ctx))
	}
	if w.storageAt.IsZero() || now.Sub(w.storageAt) >= w.reporter.interval {
		w.storageAt = now
		w.note("storage", w.measure())
	}
	begun := w.reporter.Begin(ctx)
	status := statusOf(seen{
		settings: w.agent.settings, node: w.node, nodeUnknown: !w.asked, observation: observed,
		certificate: w.agent.identity.Published(), port: w.port, storage: w.storage, now: metav1.NewTime(now),
	}, w.reporter.previous())
	w.tell(observed.health(), status)
	if begun != nil {
		w.note("report", begun)
		return
	}
	w.report(ctx, status, now)
}

func (w *watcher) report(ctx context.Context, status *v1alpha1.SmolVMNodeStatus, now time.Time) {
	labels := w.labels()
	if ctx.Err() != nil || !w.reporter.Due(labels, status, now) {
		return
	}
	err := w.reporter.Report(ctx, labels, status, now)
	if err == nil {
		w.agent.identity.Told(status.Endpoint.Certificate, now)
	}
	w.agent.meters.report(err, now)
	w.note("report", err)
}

// labels returns those of the Node; nil if it cannot be read or is gone.
func (w *watcher) labels() map[string]string {
	switch {
	case w.node == nil:
		return nil
	case w.node.Labels == nil:
		return map[string]string{}
	}
	return w.node.Labels
}

// tell tells the node API what to answer.
func (w *watcher) tell(h Health, status *v1alpha1.SmolVMNodeStatus) {
	w.agent.meters.health(h.OK)
	w.agent.api.told.Store(&told{
		health:   h,
		identity: Identity{NodeName: w.agent.settings.Node, NodeUID: string(status.NodeUID)},
		capabilities: Capabilities{
			RuntimeVersion: status.RuntimeVersion, ProtocolVersion: status.ProtocolVersion,
			CPUs: status.Allocatable.CPUs, MemoryMiB: status.Allocatable.MemoryMiB, StorageGiB: status.Allocatable.StorageGiB,
			KVMAvailable: h.KVMAvailable, Backend: status.Backend, Accelerator: string(status.Accelerator), Features: status.Features,
		},
	})
}

// readNode reads the Node. If it is not there, the one before counts no longer.
func (w *watcher) readNode(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	node := &corev1.Node{}
	err := w.agent.client.Get(ctx, client.ObjectKey{Name: w.agent.settings.Node}, node)
	switch {
	case err == nil:
		w.node, w.asked = node, true
		return nil
	case apierrors.IsNotFound(err):
		w.node, w.asked = nil, true
	}
	return fmt.Errorf("reading Node %s: %w", w.agent.settings.Node, err)
}

func (w *watcher) measure() error {
	bytes, err := storage(w.agent.settings.State)
	if err != nil {
		return fmt.Errorf("measuring the room for machines: %w", err)
	}
	w.storage = bytes
	return nil
}

// noteSilence replaces a smolvm that is alive and has not answered for long. Machines outlive it.
func (w *watcher) noteSilence(silent bool, now time.Time) {
	patience := w.agent.settings.HangTimeout
	switch {
	case !silent:
		w.answered = now
		w.agent.supervisor.Answered()
	case w.agent.supervisor.Child() == 0:
		w.answered = now
	case patience > 0 && now.Sub(w.answered) >= patience:
		w.answered = now
		w.agent.supervisor.Restart()
	}
}

// note logs an error, unless it was logged the last time.
func (w *watcher) note(about string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != w.trouble[about] {
		w.agent.log.Warn("The runtime agent continues without", "about", about, "error", err)
	}
	w.trouble[about] = text
}
