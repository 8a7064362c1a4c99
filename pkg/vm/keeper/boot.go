package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
)

// boot starts QEMU with the guest paused, checks that QEMU responds, and then starts the guest, so that no event of the
// guest is missed.
func (r *Runner) boot(ctx context.Context, p *prepared) (*guest, error) {
	r.enter(StateStarting, "starting QEMU")
	if err := r.openSockets(p); err != nil {
		return nil, err
	}
	arguments, err := machine(r.settings, p).Args()
	if err != nil {
		return nil, failf(ReasonSettingsInvalid, "building QEMU's command line: %w", err)
	}
	// The file contains keys. QEMU has read it before it responds, and nothing else may read it.
	defer func() { _ = os.Remove(r.settings.ignition()) }()
	if err := r.writeIgnition(p.bootData); err != nil {
		return nil, err
	}
	p.bootData = nil
	g, err := spawn(r.settings.QEMU, arguments, p.inherited, r.jailOf(p), r.console, r.messages)
	if err = errors.Join(err, p.closeHanded()); err != nil {
		if g != nil {
			g.kill()
		}
		return nil, err
	}
	g.reach = p.reach
	if err := r.letGo(ctx, g); err != nil {
		g.kill()
		return nil, err
	}
	return g, nil
}

// writeIgnition stores the merged boot data for QEMU, which reads it once, at its start.
func (r *Runner) writeIgnition(raw []byte) error {
	err := os.WriteFile(r.settings.ignition(), raw, 0o600)
	if user := r.qemuUser(); err == nil && user != 0 {
		err = os.Chown(r.settings.ignition(), user, user)
	}
	if err != nil {
		return because(diskReason(err), fmt.Errorf("storing the merged boot data: %w", err))
	}
	return nil
}

func (r *Runner) letGo(ctx context.Context, g *guest) error {
	ctx, cancel := context.WithTimeout(ctx, r.settings.Timeouts.Start)
	defer cancel()
	if err := g.connect(ctx, r.settings.monitor()); err != nil {
		return err
	}
	r.awaken(g)
	go g.attend(r.settings.monitor(), r.settings.Timeouts.Monitor, func() {
		r.board.set(func(s *Status) { s.Resets = g.countResets() })
		r.awaken(g)
	})
	if err := g.talk().Cont(ctx); err != nil {
		return failf(ReasonMonitorSilent, "telling QEMU to run the guest: %w", err)
	}
	r.board.set(func(s *Status) {
		s.PID = g.command.Process.Pid
		if g.address.IsValid() {
			s.Address = g.address.String()
		}
	})
	r.setLive(g)
	// Memory for the start is not needed afterwards, and each machine of a host has a runner.
	go debug.FreeOSMemory()
	r.enter(StateRunning, "")
	return nil
}

func (r *Runner) setLive(g *guest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live = g
}
