package qmp

import (
	"context"
	"fmt"
	"time"
)

// SetMemory brings the guest to that many bytes by its balloon and returns how many it has then, also with an error. A
// value above the machine's memory means all of it; the balloon counts in pages of 4 KiB. ErrGuestSilent says that the
// size has not come nearer to the target for as long as Patience allows, for example before the guest's driver is
// loaded; QEMU keeps the target and the guest may still reach it. Use SetBalloon to set the target without waiting.
func (c *Client) SetMemory(ctx context.Context, bytes int64) (actual int64, err error) {
	err = c.exclusive(ctx, func() error {
		target, err := c.balloonTarget(ctx, bytes)
		if err == nil {
			err = c.SetBalloon(ctx, target)
		}
		if err == nil {
			actual, err = c.awaitBalloon(ctx, target)
		}
		return err
	})
	if err != nil {
		return actual, fmt.Errorf("changing the memory to %d bytes: %w", bytes, err)
	}
	return actual, nil
}

// balloonTarget returns the size at which a guest that obeys ends: QEMU makes no balloon larger than requested.
func (c *Client) balloonTarget(ctx context.Context, bytes int64) (int64, error) {
	const page = 4096
	var memory struct {
		Base    int64 `json:"base-memory"`
		Plugged int64 `json:"plugged-memory"`
	}
	if err := c.Execute(ctx, "query-memory-size-summary", nil, &memory); err != nil {
		return 0, err
	}
	all := memory.Base + memory.Plugged
	return all - max(0, all-bytes)/page*page, nil
}

// awaitBalloon polls and does not wait for events, because QEMU holds those back for up to a second.
func (c *Client) awaitBalloon(ctx context.Context, target int64) (actual int64, err error) {
	const pause = 100 * time.Millisecond
	again := time.NewTicker(pause)
	defer again.Stop()
	stalled := time.NewTimer(c.patience.Balloon)
	defer stalled.Stop()
	late := false
	for nearest := int64(-1); ; {
		if actual, err = c.Balloon(ctx); err != nil || actual == target {
			return actual, err
		}
		distance := max(actual-target, target-actual)
		switch {
		case nearest < 0 || distance < nearest:
			nearest, late = distance, false
			stalled.Reset(c.patience.Balloon)
		case late:
			return actual, fmt.Errorf("%w: it stays at %d", ErrGuestSilent, actual)
		}
		select {
		case <-again.C:
		case <-stalled.C:
			late = true // what happened until now is still checked
		case <-ctx.Done():
			return actual, ctx.Err()
		}
	}
}
