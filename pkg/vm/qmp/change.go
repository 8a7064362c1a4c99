package qmp

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Why a live change did not happen. If QEMU itself rejects a command, the error is a CommandError instead.
var (
	// ErrOutOfRange says that the machine was not built for that many CPUs.
	ErrOutOfRange = errors.New("the machine cannot have so many CPUs")
	// ErrFixed says that the CPU to remove was not plugged but is part of the machine.
	ErrFixed = errors.New("the CPU cannot be unplugged")
	// ErrUnsafe says that QEMU would do it and abort, now or later.
	ErrUnsafe = errors.New("unsafe without KVM")
	// ErrGuestRefused says that the guest was asked and refused.
	ErrGuestRefused = errors.New("the guest refuses")
	// ErrGuestSilent says that the guest was asked and did nothing for as long as Patience allows. It may still react
	// later.
	ErrGuestSilent = errors.New("the guest does not react")
	// ErrUnobserved says that QEMU reported success but its state is not the requested one.
	ErrUnobserved = errors.New("QEMU is not in the state that it reported")
)

// Patience is how long live changes wait for the guest.
type Patience struct {
	// Unplug is for one CPU from the request to its removal; 30 s if 0.
	Unplug time.Duration
	// Balloon is for the memory to come nearer to its target; 15 s if 0.
	Balloon time.Duration
	// Tray is for a locked tray to open; 15 s if 0.
	Tray time.Duration
}

func (p Patience) withDefaults() Patience {
	orDefault := func(d, standard time.Duration) time.Duration {
		if d == 0 {
			return standard
		}
		return d
	}
	return Patience{
		Unplug:  orDefault(p.Unplug, 30*time.Second),
		Balloon: orDefault(p.Balloon, 15*time.Second),
		Tray:    orDefault(p.Tray, 15*time.Second),
	}
}

// exclusive runs one live change at a time, because two conflicting changes would both wait forever.
func (c *Client) exclusive(ctx context.Context, change func() error) error {
	select {
	case c.changing <- struct{}{}:
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		return fmt.Errorf("waiting for another change: %w", ctx.Err())
	}
	defer func() { <-c.changing }()
	return change()
}

// await calls done after every event until it returns true or an error. It calls done a last time when patience has
// expired, and returns ErrGuestSilent if that still returns false. judge, if not nil, may turn an event into an error.
func (c *Client) await(
	ctx context.Context, events *Subscription, patience time.Duration,
	done func() (bool, error), judge func(Event) error,
) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for late := false; ; {
		ok, err := done()
		switch {
		case ok || err != nil:
			return err
		case late:
			return ErrGuestSilent
		}
		select {
		case event, open := <-events.Events():
			switch {
			case !open:
				return c.Err()
			case judge != nil:
				if err := judge(event); err != nil {
					return err
				}
			}
		case <-timeout.C:
			late = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
