package microvm

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// machine is one machine in memory.
type machine struct {
	name string
	// busy has one element while an operation changes the machine: they follow each other.
	busy chan struct{}

	mu     sync.Mutex
	record Record
	// gone says that the machine was deleted while another operation waited for it.
	gone bool
	// doing says what the server does before the machine's process is started; empty if it does nothing.
	doing string
	// seen is the state that was last found.
	seen api.State
	// stop gives up what is in progress and may take minutes: a start, or reading the artifact of a new machine; nil if there is
	// nothing.
	stop context.CancelCauseFunc
}

func newMachine(r Record) *machine {
	return &machine{name: r.Name, busy: make(chan struct{}, 1), record: r, seen: stateOf(r, phaseDown)}
}

// hold finds a machine and waits until no other operation changes it.
func (m *Manager) hold(ctx context.Context, name string) (one *machine, release func(), err error) {
	if one, err = m.find(name); err != nil {
		return nil, nil, err
	}
	release, err = one.hold(ctx)
	return one, release, err
}

// hold waits until no other operation changes the machine. The error is NOT_FOUND if it is gone by then.
func (o *machine) hold(ctx context.Context) (release func(), err error) {
	select {
	case o.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for another operation on machine '%s': %w", o.name, context.Cause(ctx))
	}
	if o.isGone() {
		<-o.busy
		return nil, notFound(o.name)
	}
	if ctx.Err() != nil {
		<-o.busy
		return nil, context.Cause(ctx)
	}
	return func() { <-o.busy }, nil
}

// interruptible returns a context that ends when a start, or a creation, is given up. done is called when it is over.
func (o *machine) interruptible(ctx context.Context) (_ context.Context, done func()) {
	ctx, stop := context.WithCancelCause(ctx)
	set := func(stop context.CancelCauseFunc) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.stop = stop
	}
	set(stop)
	return ctx, func() { set(nil); stop(nil) }
}

// giveUp gives up a start or a creation in progress.
func (o *machine) giveUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stop != nil {
		o.stop(errInterrupted)
	}
}

// interrupt does the same as hold, and gives up starts and creations meanwhile.
func (m *Manager) interrupt(ctx context.Context, name string) (*machine, func(), error) {
	one, err := m.find(name)
	if err != nil {
		return nil, nil, err
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for {
			one.giveUp()
			select {
			case <-waiting.Done():
				return
			case <-time.After(readyPoll):
			}
		}
	}()
	release, err := one.hold(ctx)
	return one, release, err
}

// remember keeps the state that was found.
func (o *machine) remember(state api.State) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = state
}

// last returns the state that was last found.
func (o *machine) last() api.State {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen
}

func (o *machine) isGone() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gone
}

// tell shows what is done for the machine, until done is called.
func (o *machine) tell(doing string) (done func()) {
	set := func(text string) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.doing = text
	}
	set(doing)
	return func() { set("") }
}

// progress returns what is done for the machine.
func (o *machine) progress() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.doing
}

// put replaces the record of a machine that is being created.
func (o *machine) put(r Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record = r
}

func (o *machine) get() Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.record
}
