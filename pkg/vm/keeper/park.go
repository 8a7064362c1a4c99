package keeper

import (
	"context"
	"time"
)

// askParked is how often a parked machine is looked at.
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
			return nil
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
