package instance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/egress"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
	"github.com/kvm-operator/kvm-operator/pkg/vm/slots"
	"github.com/kvm-operator/kvm-operator/pkg/vm/usernet"
)

// Instance is one run of a machine. It is used once.
type Instance struct {
	plan   Plan
	log    *slog.Logger
	keeper *keeper.Keeper
	agent  *agent
	events egress.Events
	stop   context.CancelCauseFunc

	// lock is that of the machine's directory; nil if it is to be taken.
	lock *os.File
	// stays is why the machine is not in its own cgroup.
	stays error

	mu sync.Mutex
	// failure is what ended the machine, besides the keeper's reason, and cause why it was first asked to stop.
	failure, cause error
}

// New returns an instance of a machine. The guest's console goes to console, and QEMU's messages to messages; neither
// may block.
func New(plan Plan, log *slog.Logger, console, messages io.Writer) *Instance {
	i := &Instance{plan: plan, log: log}
	settings := plan.settings()
	i.agent = newAgent(settings.Agent(), log)
	i.keeper = keeper.New(settings, keeper.Guest{
		Prepare: i.prepare, Status: func(ctx context.Context) any { return i.status(ctx) }, Running: i.accompany,
		ShutDown: i.agent.shutDown, Routes: i.routes, Ended: i.ended,
	}, log, console, messages)
	return i
}

// Run runs the machine until it ends, by itself or because ctx ended, and stores how.
func (i *Instance) Run(parent context.Context) keeper.End {
	ctx, stop := context.WithCancelCause(context.WithoutCancel(parent))
	defer stop(nil)
	i.stop = func(err error) {
		i.mu.Lock()
		i.cause = cmp.Or(i.cause, err)
		i.mu.Unlock()
		stop(err)
	}
	defer context.AfterFunc(parent, func() { i.stop(errSignal) })()
	if err := os.Remove(filepath.Join(i.plan.Directory, EndName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		i.log.Error("Cannot remove the record of the machine's previous end", "error", err)
	}
	return i.keeper.Run(ctx)
}

// fail ends the machine because of an error.
func (i *Instance) fail(err error) {
	i.note(err)
	i.keeper.SetPowerdown(time.Second)
	i.stop(err)
}

func (i *Instance) note(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.failure == nil {
		i.failure = err
	}
}

// ended stores how the machine ended.
func (i *Instance) ended(end keeper.End) {
	i.mu.Lock()
	stored := endOf(end, i.failure, i.cause)
	i.mu.Unlock()
	stored.Ready, stored.At = i.agent.hasAnswered(), time.Now()
	text, err := json.Marshal(stored)
	if err == nil {
		err = slots.Replace(filepath.Join(i.plan.Directory, EndName), text)
	}
	if err != nil {
		i.log.Error("Cannot store how the machine ended", "error", err)
	}
}

// reset is QEMU's reason of a machine that was reset, which ends it: the guest rebooted, or its kernel panicked.
const reset = "guest-reset"

// endOf returns how a machine ended. failure is an additional error, and cause the reason of a requested stop.
func endOf(end keeper.End, failure, cause error) End {
	stored := End{Reason: end.Reason, Message: end.Message}
	switch {
	case failure != nil:
		stored.Message, stored.Code = failure.Error(), codeOf(failure, end.Reason)
	case end.By == reset || end.By == "guest-panic":
		stored.Code = api.CodeInternal
		stored.Message = "the guest reset itself, as after a panic of its kernel; its console's last output may say why"
	case end.Reason.ExitCode() != 0:
		stored.Code = codeOf(nil, end.Reason)
	}
	stored.Signal = errors.Is(cause, errSignal)
	return stored
}

// codeOf returns the code for what went wrong.
func codeOf(failure error, reason keeper.Reason) api.Code {
	var inUse *usernet.PortInUseError
	var malformed ociimage.MalformedError
	var known *api.Error
	switch {
	case errors.As(failure, &known):
		return known.Code
	case errors.As(failure, &inUse):
		return api.CodePortInUse
	case errors.As(failure, &malformed):
		return api.CodeImageMalformed
	}
	switch reason {
	case keeper.ReasonDiskFull:
		return api.CodeDiskFull
	case keeper.ReasonImageUnavailable:
		return api.CodeImagePullFailed
	case keeper.ReasonAccelerationUnavailable:
		return api.CodeUnavailable
	}
	return api.CodeInternal
}

// accompany talks to the agent until the machine is being stopped or has ended.
func (i *Instance) accompany(ctx context.Context, _ func() *qmp.Client) {
	timeout := i.plan.Host.ready(qemu.Accelerator(i.keeper.Status(ctx).Accelerator))
	err := i.agent.run(ctx, timeout)
	if err != nil && ctx.Err() == nil {
		i.fail(api.Errorf(api.CodeTimeout, "%v within %s after QEMU's start; its console's last output may say why", err, timeout))
	}
}

// Status is the state of the machine, as its process reports it.
type Status struct {
	keeper.Status
	// Keeper is the number of this process.
	Keeper int `json:"keeper"`
	// Agent is what is known of the guest.
	Agent AgentStatus `json:"agent"`
	// Stays says why the machine is in the cgroup of the server and ends with it.
	Stays string `json:"stays,omitempty"`
}

// AgentStatus is what is known of the guest's agent.
type AgentStatus struct {
	// Ready says that it has answered since QEMU's start.
	Ready bool `json:"ready"`
	// Answers says that it answered the last question.
	Answers bool `json:"answers"`
	// Guest is its last answer.
	Guest agentwire.Status `json:"guest"`
}

func (i *Instance) status(ctx context.Context) Status {
	s := Status{Status: i.keeper.Status(ctx), Keeper: os.Getpid(), Agent: i.agent.status()}
	if i.stays != nil {
		s.Stays = i.stays.Error()
	}
	return s
}

// openConsole returns the file for what the guest prints.
func openConsole(directory string) (io.WriteCloser, error) {
	return openRotated(filepath.Join(directory, ConsoleName), maxConsole, keptConsoles)
}

// Keep reads the plan in a machine's directory and runs the machine until ctx ends or it ends by itself. lock is the lock
// of the directory, which the caller's parent took; nil if it is to be taken. The error is ErrClaimed if another process
// runs the machine.
func Keep(ctx context.Context, directory string, lock *os.File) (err error) {
	claimed, err := claim(directory)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(claimed) // the lock goes with the process, not earlier
	plan, err := ReadPlan(directory)
	if err != nil {
		return err
	}
	messages, err := openRotated(filepath.Join(directory, LogName), maxLog, 1)
	if err != nil {
		return fmt.Errorf("opening the machine's log: %w", err)
	}
	defer func() { err = errors.Join(err, messages.Close()) }()
	console, err := openConsole(directory)
	if err != nil {
		return fmt.Errorf("opening the file for the machine's console: %w", err)
	}
	defer func() { err = errors.Join(err, console.Close()) }()
	log := slog.New(slog.NewTextHandler(messages, nil))
	i := New(plan, log, console, messages)
	i.lock = lock
	if i.stays = plan.enter(); i.stays != nil {
		log.Warn("The machine stays in the cgroup of the server and ends with it", "error", i.stays)
	}
	end := i.Run(ctx)
	log.Info("The machine has ended", "reason", end.Reason, "message", end.Message)
	return nil
}

// errSignal says that a signal asked the process to end: the host is being shut down, or its cgroup is.
var errSignal = errors.New("its process got a signal")
