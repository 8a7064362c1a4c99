package keeper

import (
	"context"
	"os"
	"time"
)

// askParked is how often a parked machine is checked.
const askParked = time.Second

// Park keeps the machine from being started until over says that it may be, or until ctx ends, whose error is returned.
// over gets how long the machine has been parked, and returns what the machine waits for, for the status.
func (l *Launch) Park(ctx context.Context, over func(parked time.Duration) (done bool, why string)) error {
	begin, shown := time.Now(), ""
	ticker := time.NewTicker(askParked)
	defer ticker.Stop()
	for {
		done, why := over(time.Since(begin))
		if done {
			return l.parked(End{}, shown != "")
		}
		if shown == "" {
			if err := l.parked(parkedEnd, true); err != nil {
				return err
			}
		}
		if why != shown {
			l.keeper.enter(StateParked, why)
			shown = why
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// parkedEnd is the end of a machine that was parked, however it comes: the guest is down, and is to stay so.
var parkedEnd = End{Reason: ReasonGuestShutDown, Message: "the machine was parked, because the guest had shut itself down"}

// parked stores the end at once that a machine has if it is killed while it is parked, or removes it again.
func (l *Launch) parked(end End, changed bool) error {
	path := l.keeper.settings.TerminationLog
	if !changed || path == "" {
		return nil
	}
	if end == (End{}) {
		return Because(ReasonInternal, os.Truncate(path, 0))
	}
	return Because(ReasonInternal, WriteTermination(path, end, nil))
}
