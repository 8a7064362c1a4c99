package keeper

import (
	"context"
	"time"
)

// heartbeat tracks whether the guest has shown a sign of life since its machine was last reset: a write to a disk, or a
// packet. Kernels, mainly emulated ones, sometimes hang in their first seconds, and from outside such a machine looks
// like one that boots slowly.
type heartbeat struct {
	beat  beat
	since time.Time
	alive bool
	// patience is how long the first sign may take.
	patience time.Duration
}

// beat is what is observed of a machine.
type beat struct {
	running bool
	resets  int
	// signs counts what the guest has written and sent.
	signs uint64
}

// overdue reports whether the guest has shown no sign of life in time. Then it gets twice as long, because its host may
// merely be slow.
func (p *heartbeat) overdue(now time.Time, b beat, patience time.Duration) bool {
	switch {
	case p.since.IsZero() || b.resets != p.beat.resets:
		p.beat, p.since, p.alive, p.patience = b, now, false, max(p.patience, patience)
	case b.signs != p.beat.signs:
		p.alive, p.patience = true, 0
	case !b.running:
		p.since = now
	}
	if p.alive || now.Sub(p.since) < p.patience {
		return false
	}
	p.since, p.patience = now, 2*p.patience
	return true
}

// resetIfHung resets a machine whose guest hangs. Since it was switched on or reset, the guest has written and sent
// nothing, so nothing is lost.
func (k *Keeper) resetIfHung(g *guest) {
	patience := k.settings.Timeouts.Boot
	if patience == 0 || g.reach.Sent == nil || g.stopped() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), k.settings.Timeouts.Monitor)
	defer cancel()
	b, err := g.sample(ctx)
	if err != nil || !g.heartbeat.overdue(time.Now(), b, patience) {
		return
	}
	k.log.Info("Resetting the machine: its guest has neither written to a disk nor sent a packet since its last start or reset",
		"patience", (g.heartbeat.patience / 2).String(), "next", g.heartbeat.patience.String())
	k.board.set(func(s *Status) { s.Awakened++ })
	if err := g.connection().Reset(ctx); err != nil {
		k.log.Info("The machine could not be reset", "error", err)
	}
}

func (g *guest) sample(ctx context.Context) (beat, error) {
	status, err := g.connection().Status(ctx)
	if err != nil {
		return beat{}, err
	}
	written, err := g.connection().Writes(ctx)
	if err != nil {
		return beat{}, err
	}
	sent, err := g.reach.Sent()
	return beat{running: status.Running, resets: g.countResets(), signs: written + sent}, err
}
