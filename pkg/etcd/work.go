package etcd

import (
	"context"
	"sync"
	"time"
)

const (
	// tryAgain is how long a member is left alone that could not be defragmented: each try keeps it from answering.
	tryAgain = 10 * time.Minute
	// restWhenAsked is how long no upkeep begins after somebody has asked: he is about to let a master go, and needs the others to answer until
	// it is down, for which it has ten minutes. A database that is full does not wait for that.
	restWhenAsked = 12 * time.Minute
)

// upkeep is what members that are whole need, one thing at a time. It takes minutes, in which its Keeper goes on looking at all members.
type upkeep struct {
	// ended waits for what is under way.
	ended sync.WaitGroup

	mu sync.Mutex
	// under is what is under way, nil when nothing is, and came what came of what was last.
	under *Step
	came  Step
	// tried is when what failed may be tried again, and asked until when nothing may begin because somebody has asked.
	tried, asked time.Time
}

// now is what is under way, nil if nothing is.
func (u *upkeep) now() *Step {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.under
}

// rests says that nothing may begin.
func (u *upkeep) rests(full bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	return now.Before(u.tried) || now.Before(u.asked) && !full
}

// told is what is to be told of it. What is tried again is told as what came of it before, or it would be another word each time.
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

// rest has nothing begin for some time, for somebody has asked.
func (u *upkeep) rest() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked = time.Now().Add(restWhenAsked)
}

// begin keeps in mind what is under way.
func (u *upkeep) begin(step Step) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.under = &step
}

// end keeps in mind what came of it.
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

// spare counts a member that is defragmented among those that do not answer: it does not, or will not in a moment.
func (o observation) spare(under *Step) {
	for i := range o.members {
		if under != nil && under.Action == Defragment && o.members[i].ID == under.Member.ID {
			o.members[i].Healthy = false
		}
	}
}

// maintain begins what members that are whole need and returns what is to be told. What goes well is nothing to wait for afterwards.
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

// carryOut does a step of upkeep over connections of its own, for those of Run go when a member gets another address. What it needs is looked
// at once more: that all members are whole, and that none of them has asked for something else meanwhile.
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
