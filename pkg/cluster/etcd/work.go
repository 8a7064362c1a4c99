package etcd

import (
	"context"
	"sync"
	"time"
)

const (
	// tryAgain is how long to wait before a member whose defragmentation failed is tried again: it does not respond
	// during each attempt.
	tryAgain = 10 * time.Minute
	// restWhenAsked is how long no upkeep begins after a call of Ask: the caller is about to release a master, and
	// needs the other members to respond until it is down, for which it has ten minutes. A full database does not wait
	// for that.
	restWhenAsked = 12 * time.Minute
)

// upkeep is the maintenance of a healthy cluster, one task at a time. It takes minutes, in which its Keeper continues
// to observe all members.
type upkeep struct {
	// ended waits for the task in progress.
	ended sync.WaitGroup

	mu sync.Mutex
	// under is the task in progress, nil if there is none, and came is the result of the last one.
	under *Step
	came  Step
	// tried is when a failed task may be retried, and asked is until when no task may begin because of a call of Ask.
	tried, asked time.Time
}

// now returns the task in progress, or nil if there is none.
func (u *upkeep) now() *Step {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.under
}

// rests reports whether no task may begin.
func (u *upkeep) rests(full bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	return now.Before(u.tried) || now.Before(u.asked) && !full
}

// told returns the step to report. A task that is retried is reported by its last result, because the message would
// change with each attempt otherwise.
func (u *upkeep) told() Step {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.under != nil && (u.came.Action != Wait || u.came.Reason != u.under.Reason):
		return *u.under
	case u.came.Action == "":
		return Step{Action: None}
	}
	return u.came
}

// rest prevents tasks from beginning for some time, because of a call of Ask.
func (u *upkeep) rest() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked = time.Now().Add(restWhenAsked)
}

// begin records the task in progress.
func (u *upkeep) begin(step Step) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.under = &step
}

// end records its result.
func (u *upkeep) end(came Step) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch u.under, u.came = nil, came; {
	case failedToDefragment(came):
		u.tried = time.Now().Add(tryAgain)
	case came.Action == Wait:
		u.tried = time.Now().Add(longestPause)
	}
}

func failedToDefragment(s Step) bool { return s.Action == Wait && s.Reason == ReasonDefragmenting }

// markDefragmenting counts a member that is being defragmented as unhealthy: it does not respond, or will soon
// stop responding.
func (o observation) markDefragmenting(under *Step) {
	for i := range o.members {
		if under != nil && under.Action == Defragment && o.members[i].ID == under.Member.ID {
			o.members[i].Healthy = false
		}
	}
}

// maintain begins the maintenance step and returns the step to report. A task that succeeds leaves nothing to wait for.
func (k *Keeper) maintain(ctx context.Context, access Access, masters []Master, step Step) Step {
	if step.Action == None {
		k.upkeep.end(step)
		return step
	}
	k.upkeep.begin(step)
	k.upkeep.ended.Go(func() {
		came, acted := k.carryOut(ctx, access, masters, step)
		if acted {
			came = Step{Action: None}
		}
		k.upkeep.end(came)
	})
	return k.upkeep.told()
}

// carryOut carries out a maintenance step over its own connections, because those of Run are closed when a member gets
// another address. It first checks again that all members are healthy and that they still need the same step.
func (k *Keeper) carryOut(ctx context.Context, access Access, masters []Master, step Step) (taken Step, acted bool) {
	c := dial(access, k.fence)
	defer c.close()
	o, err := c.observe(ctx)
	if err != nil || Decide(o.members, masters).Action != None {
		return Step{Action: None}, false
	}
	if now := Maintain(o.databases, o.full()); now.Action != step.Action || now.Member.ID != step.Member.ID {
		return Step{Action: None}, false
	}
	return k.act(ctx, o, step)
}
