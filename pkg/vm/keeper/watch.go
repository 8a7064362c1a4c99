package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// watch supervises a running machine until it has ended, by itself or because ctx ended.
func (k *Keeper) watch(ctx context.Context, g *guest) End {
	defer func() {
		g.kill()
		<-g.attended
		g.leave()
		k.setLive(nil)
	}()
	select {
	case <-ctx.Done():
		return k.terminate(g)
	case <-g.exited:
		return endOfItself(g)
	case <-g.attended:
		if g.silence == nil {
			return endOfItself(g)
		}
		g.kill()
		return End{Reason: ReasonMonitorSilent, Message: fmt.Sprintf("%v; it was killed", g.silence)}
	}
}

// companyTimeout is how long what runs beside a guest may take to notice the guest's end. It may hang on a file system.
const companyTimeout = 5 * time.Second

// leave waits for what runs beside the guest.
func (g *guest) leave() {
	left := make(chan struct{})
	go func() { g.company.Wait(); close(left) }()
	select {
	case <-left:
	case <-time.After(companyTimeout):
	}
}

// endOfItself is the end of a machine that was not asked to stop.
func endOfItself(g *guest) End {
	<-g.exited
	<-g.attended
	switch by, guest := g.wentDown(); {
	case g.err == nil && guest:
		return End{Reason: ReasonGuestShutDown, Message: "the guest shut itself down", By: by}
	case g.err == nil && by != "":
		return End{Reason: ReasonQEMUCrashed, Message: "QEMU was terminated by another process (" + by + ")"}
	}
	return End{Reason: ReasonQEMUCrashed, Message: "QEMU ended: " + g.lastWords()}
}

// stage is one step of a machine's termination.
type stage struct {
	state State
	step  string
	// timeout bounds the stage; enough ends it earlier.
	timeout time.Duration
	enough  <-chan struct{}
	// act is called at the beginning and then at the interval every.
	act   func(context.Context, *qmp.Client) error
	every time.Duration
}

// again is after how long the power button is pressed again: a guest that is still booting misses it.
const again = 5 * time.Second

// stages returns the steps of a termination in order; each ends when the machine has ended.
func (k *Keeper) stages() []stage {
	t, powerdown := k.settings.Timeouts, k.powerdownTimeout()
	return []stage{
		{state: StateHeld, step: fmt.Sprintf("waiting for release, for %s at most", t.Hold), timeout: t.Hold, enough: k.released},
		{state: StatePoweringDown, step: fmt.Sprintf("waiting for the guest to shut down, for %s at most", powerdown), timeout: powerdown,
			act: k.askToShutDown(), every: again},
		{state: StateQuitting, step: fmt.Sprintf("waiting for QEMU to quit, for %s at most", t.Quit), timeout: t.Quit,
			act: func(ctx context.Context, monitor *qmp.Client) error { return monitor.Quit(ctx) }, every: t.Quit},
	}
}

// askToShutDown returns a function that asks the guest to shut down: at first by its agent, if that works, and then by
// the power button.
func (k *Keeper) askToShutDown() func(context.Context, *qmp.Client) error {
	first := true
	return func(ctx context.Context, monitor *qmp.Client) error {
		if first && k.guest.ShutDown != nil {
			first = false
			if k.guest.ShutDown(ctx) {
				return nil
			}
		}
		return pressPowerButton(ctx, monitor)
	}
}

// pressPowerButton asks the guest to shut down. A paused guest would not notice it, so it is resumed first; it was
// paused because a disk was full or by a command.
func pressPowerButton(ctx context.Context, monitor *qmp.Client) error {
	status, err := monitor.Status(ctx)
	if err == nil && !status.Running {
		err = monitor.Cont(ctx)
	}
	return errors.Join(err, monitor.Powerdown(ctx))
}

// terminate ends the machine as gently as possible.
func (k *Keeper) terminate(g *guest) End {
	begin := time.Now()
	g.stop()
	for _, s := range k.stages() {
		if s.timeout == 0 || !k.pass(s, g) {
			continue
		}
		switch s.state {
		case StateHeld:
			return endOfItself(g)
		case StatePoweringDown:
			<-g.attended
			if _, guest := g.wentDown(); !guest || g.err != nil {
				return endOfItself(g)
			}
			return End{Reason: ReasonPoweredDown, Message: fmt.Sprintf("the guest shut down %s after it was asked to", time.Since(begin).Round(time.Millisecond))}
		}
		return k.ignored("QEMU quit")
	}
	k.enter(StateKilling, "")
	g.kill()
	return k.ignored("QEMU, which did not quit within " + k.settings.Timeouts.Quit.String() + ", was killed")
}

func (k *Keeper) ignored(how string) End {
	return End{Reason: ReasonGuestKilled, Message: fmt.Sprintf("the guest did not shut down within %s; %s", k.powerdownTimeout(), how)}
}

// pass runs a stage and reports whether the machine has ended in it.
func (k *Keeper) pass(s stage, g *guest) bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	k.enter(s.state, s.step)
	if s.state == StateHeld {
		until := time.Now().Add(s.timeout)
		k.board.set(func(b *Status) { b.HeldUntil = &until })
		defer k.board.set(func(b *Status) { b.HeldUntil = nil })
	}
	if s.act != nil {
		go k.repeat(ctx, s, g)
	}
	select {
	case <-g.exited:
		return true
	case <-s.enough:
	case <-ctx.Done():
	}
	return false
}

// repeat runs beside the stage, because a QEMU that does not respond blocks the call.
func (k *Keeper) repeat(ctx context.Context, s stage, g *guest) {
	ticker := time.NewTicker(s.every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, s.every)
		err := s.act(asking, g.connection())
		cancel()
		if err != nil && ctx.Err() == nil && !g.ended() {
			k.log.Info("Cannot send a command to QEMU", "state", s.state, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-g.exited:
			return
		case <-ticker.C:
		}
	}
}
