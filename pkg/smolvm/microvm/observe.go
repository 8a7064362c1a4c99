package microvm

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/instance"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// observed is what a machine does, as far as that can be found out.
type observed struct {
	// answers says that the machine's process answered, with status.
	answers bool
	status  instance.Status
	// held says that the machine has a process, also if that does not answer, and fresh that it was started just now.
	held, fresh bool
}

// askTimeout is how long the process of a machine may take to answer.
const askTimeout = 4 * time.Second

// observe asks the process of a machine. A request that is given up does not end the question: what it would look like
// then is not what the machine does.
func (m *Manager) observe(ctx context.Context, r Record) observed {
	if r.Started.IsZero() && !r.Wanted {
		return observed{}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	directory := m.store.directory(r.Name)
	status, err := m.keepers.Status(ctx, directory)
	if err == nil {
		return observed{answers: true, status: status, held: true}
	}
	alive, err := m.keepers.Alive(directory)
	return observed{held: alive || err != nil && !errors.Is(err, fs.ErrNotExist), fresh: m.now().Sub(r.Started) < m.patience.appear}
}

// phase is what a machine does, with more detail than the API has.
type phase int

const (
	// phaseDown: no process has the machine.
	phaseDown phase = iota
	// phaseStarting: its process runs, and the guest's agent has not answered yet.
	phaseStarting
	// phaseUp: the agent answers.
	phaseUp
	// phaseSilent: the agent answered before, or something else holds the disks.
	phaseSilent
	// phaseEnding: the machine is being shut down.
	phaseEnding
)

// phaseOf decides what a machine does.
func phaseOf(o observed) phase {
	if !o.answers {
		switch {
		case o.held && o.fresh:
			return phaseStarting
		case o.held:
			return phaseSilent
		}
		return phaseDown
	}
	switch o.status.State {
	case keeper.StatePreparing, keeper.StateStarting:
		return phaseStarting
	case keeper.StatePoweringDown, keeper.StateQuitting, keeper.StateKilling, keeper.StateStopped:
		return phaseEnding
	}
	switch a := o.status.Agent; {
	case a.Answers:
		return phaseUp
	case a.Ready:
		return phaseSilent
	}
	return phaseStarting
}

// stateOf returns the state in the API. While a machine starts or ends, it is what it was before.
func stateOf(r Record, p phase) api.State {
	switch {
	case p == phaseUp || p == phaseEnding:
		return api.StateRunning
	case p == phaseSilent:
		return api.StateUnreachable
	case r.Failed:
		return api.StateFailed
	case r.Started.IsZero():
		return api.StateCreated
	}
	return api.StateStopped
}

// describe returns a machine as the API shows it.
func (m *Manager) describe(ctx context.Context, one *machine) api.Machine {
	r := one.get()
	shown := show(r, m.observe(ctx, r))
	if doing := one.progress(); doing != "" && shown.PID == 0 && shown.State != api.StateRunning {
		shown.Message = doing
	}
	one.remember(shown.State)
	return shown
}

func show(r Record, o observed) api.Machine {
	p := phaseOf(o)
	shown := api.Machine{
		Name: r.Name, State: stateOf(r, p), CPUs: r.cpus(), MemoryMB: r.memoryMB(), Network: r.Spec.Network,
		Mounts: []api.Mount{}, Ports: append([]api.Port{}, r.Spec.Ports...), StorageGB: r.StorageGB, OverlayGB: r.OverlayGB, CreatedAt: r.Created.Unix(),
		AllowedCIDRs: r.Spec.AllowedCIDRs, Image: r.Spec.Image, From: r.Spec.From, ImageDigest: r.Digest, SpecHash: cmp.Or(r.SpecHash, r.Spec.Hash()), Owner: r.Owner, Message: message(r, o, p),
	}
	if !r.Started.IsZero() {
		shown.StartedAt = r.Started.Unix()
	}
	if !o.answers {
		return shown
	}
	shown.PID, shown.Accelerator = o.status.PID, o.status.Accelerator
	if p == phaseUp {
		shown.Workload, shown.ExitCode = string(o.status.Agent.Guest.Workload), o.status.Agent.Guest.ExitCode
	}
	return shown
}

// message says why a machine is in a state that was not asked for.
func message(r Record, o observed, p phase) string {
	switch p {
	case phaseUp:
		if o.status.Stays != "" {
			return "the machine ends with its server's container or service: " + o.status.Stays
		}
		return ""
	case phaseStarting:
		return "the machine starts: " + cmp.Or(o.status.Step, "waiting for the guest's agent")
	case phaseEnding:
		return "the machine is being shut down: " + o.status.Step
	case phaseSilent:
		if !o.answers {
			return "the machine's process runs and does not answer"
		}
		return "QEMU runs and the guest's agent does not answer: " + cmp.Or(o.status.Unready, "no reason is known")
	}
	return r.Message
}
