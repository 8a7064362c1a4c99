package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// boot starts QEMU with the guest paused, checks that QEMU responds, and then starts the guest, so that no event of the
// guest is missed.
func (k *Keeper) boot(ctx context.Context, l *Launch) (*guest, error) {
	k.enter(StateStarting, "starting QEMU")
	// QEMU has read these files before it responds.
	defer l.removeOnce()
	m := k.settings.Complete(l.Machine)
	if err := l.openSockets(&m); err != nil {
		return nil, err
	}
	arguments, err := m.Args()
	if err != nil {
		return nil, Failf(ReasonSettingsInvalid, "building QEMU's command line: %w", err)
	}
	k.board.set(func(s *Status) { s.Rooted = len(l.Jail.Capabilities) > 0 })
	g, err := spawn(k.settings.QEMU, arguments, l.Files, l.Jail, k.console, k.messages)
	if err = errors.Join(err, l.closeHanded()); err != nil {
		if g != nil {
			g.kill()
		}
		return nil, err
	}
	g.reach = l.Reach
	if err := k.startGuest(ctx, g, l.Configure); err != nil {
		g.kill()
		return nil, err
	}
	return g, nil
}

// openSockets creates the sockets of monitor and agent. QEMU inherits them, so that it needs no directory to create
// sockets in.
func (l *Launch) openSockets(m *qemu.Machine) error {
	for _, socket := range []struct {
		path   string
		number *int
	}{{m.Monitor, &m.MonitorDescriptor}, {m.Agent, &m.AgentDescriptor}} {
		file, err := listen(socket.path)
		if err != nil {
			return Because(ReasonInternal, fmt.Errorf("making a socket for QEMU: %w", err))
		}
		*socket.number = l.Give(file)
	}
	return nil
}

// listen creates a listening socket at a path, which only the keeper's user can open.
func listen(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	file, err := listener.File()
	if err = errors.Join(err, os.Chmod(path, 0o600), listener.Close()); err != nil && file != nil {
		err = errors.Join(err, file.Close())
	}
	return file, err
}

// startGuest connects to QEMU, and lets it run the guest once it is configured.
func (k *Keeper) startGuest(ctx context.Context, g *guest, configure func(context.Context, *qmp.Client)) error {
	ctx, cancel := context.WithTimeout(ctx, k.settings.Timeouts.Start)
	defer cancel()
	if err := g.connect(ctx, k.settings.monitor()); err != nil {
		return err
	}
	k.resetIfHung(g)
	go g.watchMonitor(k.settings.monitor(), k.settings.Timeouts.Monitor, func() {
		k.board.set(func(s *Status) { s.Resets = g.countResets() })
		k.resetIfHung(g)
	})
	if configure != nil {
		configure(ctx, g.connection())
	}
	if err := g.connection().Cont(ctx); err != nil {
		return Failf(ReasonMonitorSilent, "telling QEMU to run the guest: %w", err)
	}
	k.board.set(func(s *Status) {
		s.PID = g.command.Process.Pid
		if g.reach.Address.IsValid() {
			s.Address = g.reach.Address.String()
		}
	})
	k.setLive(g)
	if k.guest.Running != nil {
		g.company.Go(func() { k.accompany(g) })
	}
	// Memory for the start is not needed afterwards, and each machine of a host has a keeper.
	go debug.FreeOSMemory()
	k.enter(StateRunning, "")
	return nil
}

// accompany runs what runs beside the guest until the machine is being stopped or has ended.
func (k *Keeper) accompany(g *guest) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-g.stopping:
		case <-g.exited:
		case <-ctx.Done():
		}
	}()
	k.guest.Running(ctx, g.connection)
}

func (k *Keeper) setLive(g *guest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.live = g
}
