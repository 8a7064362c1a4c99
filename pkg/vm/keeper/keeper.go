package keeper

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// Keeper keeps one machine from its preparation to its end. It is used once.
type Keeper struct {
	settings Settings
	guest    Guest
	log      *slog.Logger
	messages io.Writer
	board    board
	console  *console
	// released is closed when the machine need not be held.
	released chan struct{}
	release  sync.Once
	// live is the running QEMU, for requests from outside.
	mu   sync.Mutex
	live *guest
	// powerdown is how long the guest may take to shut down.
	powerdown time.Duration
}

// Guest is the part of a machine that its keeper knows nothing of.
type Guest struct {
	// Prepare does everything that can fail before QEMU is started, and fills the launch, which the keeper closes also
	// after an error. Its error has the reason for the end, see Because.
	Prepare func(context.Context, *Launch) error
	// Status returns what the control socket answers: what Keeper.Status returns, or a struct that embeds it.
	Status func(context.Context) any
	// Running is called beside the running guest, with a context that ends when the machine is being stopped or has ended.
	// monitor returns the connection to QEMU's monitor, which may have ended. May be nil.
	Running func(ctx context.Context, monitor func() *qmp.Client)
	// ShutDown asks the guest to shut down in another way than by the power button, and returns whether it was asked. ctx
	// ends after a few seconds. May be nil.
	ShutDown func(ctx context.Context) bool
	// Routes adds to what the control socket serves. May be nil.
	Routes func(*http.ServeMux)
	// Ended is called once the machine has ended, before its locks are given back. May be nil.
	Ended func(End)
}

// New returns a Keeper. The guest's console goes to output, QEMU's messages to messages, and the keeper's own messages
// to log. None of them may block: see Outlet.
func New(settings Settings, guest Guest, log *slog.Logger, output, messages io.Writer) *Keeper {
	k := &Keeper{settings: settings, guest: guest, log: log, messages: messages, console: newConsole(output), released: make(chan struct{}), powerdown: settings.Timeouts.Powerdown}
	k.board.status = Status{Name: settings.Name, State: StatePreparing, Since: time.Now()}
	return k
}

// Run runs the machine until it ends. When ctx ends, the machine is first held until it is released, then powered down,
// and finally killed, each within its timeout.
func (k *Keeper) Run(ctx context.Context) End {
	end := k.run(ctx)
	k.enter(StateStopped, string(end.Reason))
	if err := WriteTermination(k.settings.TerminationLog, end, k.console.tail(consoleKept)); err != nil {
		k.log.Error("The reason of the end cannot be stored", "error", err)
	}
	return end
}

func (k *Keeper) run(ctx context.Context) End {
	if err := k.settings.Validate(); err != nil {
		return k.over(End{Reason: ReasonSettingsInvalid, Message: err.Error()})
	}
	control, err := k.serveControl()
	if err != nil {
		return k.over(EndOf(err))
	}
	defer k.close("closing the control socket", control)

	l := k.newLaunch()
	defer k.close("giving back what the machine was given", l)
	return k.over(k.keep(ctx, l))
}

// over tells the guest's part how the machine ended. What the machine was given is not given back before that, so that
// another process that finds its disks free also finds how it ended.
func (k *Keeper) over(end End) End {
	if k.guest.Ended != nil {
		k.guest.Ended(end)
	}
	return end
}

// keep is the machine's life.
func (k *Keeper) keep(ctx context.Context, l *Launch) End {
	if err := k.guest.Prepare(ctx, l); err != nil {
		return k.prematureEnd(ctx, err)
	}
	g, err := k.boot(ctx, l)
	if err != nil {
		return k.prematureEnd(ctx, err)
	}
	return k.watch(ctx, g)
}

// SetPowerdown changes how long the guest may take to shut down, from the next time that it is asked to.
func (k *Keeper) SetPowerdown(timeout time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.powerdown = timeout
}

func (k *Keeper) powerdownTimeout() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.powerdown
}

// Known returns what the keeper knows of its machine without asking QEMU, and a channel that is closed when that has
// changed.
func (k *Keeper) Known() (Status, <-chan struct{}) { return k.board.known() }

// prematureEnd is the end of a machine that never ran.
func (k *Keeper) prematureEnd(ctx context.Context, err error) End {
	if ctx.Err() != nil && k.board.get().State == StateParked {
		return parkedEnd
	}
	if ctx.Err() != nil {
		return End{Reason: ReasonPoweredDown, Message: "the machine was stopped before it was started"}
	}
	return EndOf(err)
}

func (k *Keeper) close(what string, c io.Closer) {
	if err := c.Close(); err != nil {
		k.log.Error("The runner could not clean up", "while", what, "error", err)
	}
}

// enter changes the state; step describes what happens in it.
func (k *Keeper) enter(state State, step string) {
	k.board.set(func(s *Status) {
		if s.State != state {
			s.State, s.Since = state, time.Now()
		}
		s.Step = step
	})
	k.log.Info(string(state), "step", step)
}

// Release releases a machine that is held, or will be. A second call has no effect.
func (k *Keeper) Release() { k.release.Do(func() { close(k.released) }) }
