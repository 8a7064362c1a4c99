package microvm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/instance"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// How machines are supervised.
const (
	superviseEvery = 2 * time.Second
	// longRun is how long a machine has to run until an end counts as its first.
	longRun = 10 * time.Minute
	// maxRetryDelay bounds the time between two starts of a machine that ends by itself.
	maxRetryDelay = 5 * time.Minute
	maxDoublings  = 8
)

// Run supervises the machines until ctx ends: those that end by themselves are started again as they are meant to be.
// The machines run on after it.
func (m *Manager) Run(ctx context.Context) {
	defer m.starting.Wait()
	m.starting.Go(func() { m.prove(ctx) })
	tick := time.NewTicker(superviseEvery)
	defer tick.Stop()
	for {
		for _, one := range m.all() {
			m.supervise(ctx, one)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// supervise looks after one machine, unless an operation does.
func (m *Manager) supervise(ctx context.Context, one *machine) {
	if !one.get().Wanted {
		return
	}
	select {
	case one.busy <- struct{}{}:
	default:
		return
	}
	due, err := m.decide(ctx, one)
	if err != nil {
		m.log.Error("Cannot store whether a machine is restarted", "machine", one.name, "error", err)
	}
	if !due {
		<-one.busy
		return
	}
	m.starting.Go(func() {
		defer func() { <-one.busy }()
		m.startAgain(ctx, one)
	})
}

// decide decides whether and when a machine is restarted, stores that, and reports whether it is due now.
func (m *Manager) decide(ctx context.Context, one *machine) (due bool, err error) {
	r := one.get()
	if one.isGone() || !r.Wanted || isClosed(ctx.Done()) {
		return false, nil
	}
	shown := m.describe(ctx, one)
	switch {
	case shown.PID != 0 || phaseOf(m.observe(ctx, r)) != phaseDown:
		return false, nil
	case !r.RetryAt.IsZero():
		return !m.now().Before(r.RetryAt), nil
	}
	end := m.lastEnd(r)
	next := again(r, end, m.now())
	m.log.Info("A machine has ended by itself", "machine", r.Name, "message", end.Message, "again", next.Wanted, "at", next.RetryAt)
	return false, m.change(one, func(r *Record) { *r = next })
}

// lastEnd returns how a machine ended.
func (m *Manager) lastEnd(r Record) instance.End {
	end, err := instance.ReadEnd(m.store.directory(r.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return instance.End{Reason: keeper.ReasonQEMUCrashed, Code: api.CodeInternal, Message: "its process was killed, or the host was"}
	}
	if err != nil {
		return instance.End{Reason: keeper.ReasonInternal, Code: api.CodeInternal, Message: err.Error()}
	}
	return end
}

// afterSignal is how long a machine whose process got a signal is left alone: its host may be shutting down.
const afterSignal = time.Minute

// again decides whether and when a machine that has ended by itself is restarted.
func again(r Record, end instance.End, now time.Time) Record {
	if now.Sub(r.Started) >= longRun {
		r.Retries = 0
	}
	r.Message = "the machine ended by itself: " + end.Message
	if end.Signal {
		r.Message = "the machine was shut down because its process got a signal, as when its host is shut down"
	}
	policy := r.Spec.Restart
	switch {
	case policy.Policy == api.RestartNever, policy.Policy == api.RestartOnFailure && end.Reason == keeper.ReasonGuestShutDown && end.Code == "":
		r.Wanted = false
	case end.Signal:
		r.RetryAt = now.Add(afterSignal)
	case policy.MaxRetries > 0 && r.Retries >= policy.MaxRetries:
		r.Wanted, r.Failed = false, true
	default:
		r.RetryAt = now.Add(min(time.Second<<min(r.Retries, maxDoublings), maxRetryDelay))
		r.Retries++
	}
	return r
}

// restartTimeout bounds one attempt to start a machine again, with its image.
const restartTimeout = 15 * time.Minute

// startAgain starts a machine that ended by itself. It stays wanted if that fails: the next attempt comes later. Nothing
// is stored if ctx has ended: the next server continues where this one stopped.
func (m *Manager) startAgain(ctx context.Context, one *machine) {
	before := one.get()
	trying, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	err := m.start(trying, one, api.StartRequest{})
	if err == nil || ctx.Err() != nil || errors.Is(err, errInterrupted) {
		return
	}
	m.log.Error("A machine could not be started again", "machine", one.name, "error", err)
	next := again(before, instance.End{Reason: keeper.ReasonInternal, Code: api.CodeInternal}, m.now())
	if api.CodeOf(err) == api.CodeUnsupported { // each attempt of this server would end the same way
		next.Wanted, next.Failed, next.RetryAt = false, true, time.Time{}
	}
	next.Message = fmt.Sprintf("the machine could not be started again: %v", err)
	if stored := m.change(one, func(r *Record) {
		started, digest := startedAfter(err, before, *r), r.Digest
		*r = next
		r.Started, r.Digest = started, digest
	}); stored != nil {
		m.log.Error("Cannot store whether a machine is restarted", "machine", one.name, "error", stored)
	}
}

// DrainTimeout is how long all machines together may take to shut down.
const DrainTimeout = 40 * time.Second

// Drain shuts all machines down.
func (m *Manager) Drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, DrainTimeout)
	defer cancel()
	all := m.all()
	failed := make(chan error, len(all))
	for _, one := range all {
		go func() {
			_, err := m.Stop(ctx, one.name)
			if api.IsNotFound(err) {
				err = nil
			}
			failed <- err
		}()
	}
	var errs []error
	for range all {
		errs = append(errs, <-failed)
	}
	return errors.Join(errs...)
}
