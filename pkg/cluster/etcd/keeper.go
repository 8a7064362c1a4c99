package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
)

const (
	// lookAgain is the interval between observations of a healthy cluster.
	lookAgain = time.Minute
	// firstPause and longestPause bound the interval while the Keeper waits for something. It doubles as long as
	// nothing changes.
	firstPause, longestPause = time.Second, 15 * time.Second
)

// State is what is known of a cluster's etcd.
type State struct {
	// Members are those of a list that a majority has agreed on. If it is nil, there is no such list now, and Step says
	// why.
	Members []Member
	// Step is what was decided on that list.
	Step Step
	// Alarms are the alarms that members raised, in etcd's words: "memberID:<number> alarm:NOSPACE".
	Alarms []string
}

// Known reports whether there is a list.
func (s State) Known() bool { return s.Members != nil }

func (s State) equal(t State) bool {
	return slices.Equal(s.Members, t.Members) && s.Step == t.Step && slices.Equal(s.Alarms, t.Alarms) && s.Known() == t.Known()
}

// ReasonUnreachable is the reason of a State without a list, unless the list is missing for lack of a majority.
const ReasonUnreachable = "Unreachable"

// Keeper keeps the members of one cluster. Its methods, except Ask and Run, never wait for a member. They are safe for
// concurrent use.
type Keeper struct {
	changed func()
	fence   *fence.Fence
	log     logr.Logger
	// wake receives a value when there is a reason to observe at once.
	wake chan struct{}

	mu      sync.Mutex
	access  Access
	masters []Master
	state   State
	// asked says that the members were asked; listed is the last list that they returned, at listedAt.
	asked    bool
	listed   []Member
	listedAt time.Time
	// waiting are channels that are closed once the members have been asked again.
	waiting []chan struct{}

	upkeep upkeep
}

// NewKeeper creates a Keeper that changes something only while the fence is open. changed is called when its State
// changes, and must not block.
func NewKeeper(log logr.Logger, f *fence.Fence, changed func()) *Keeper {
	return &Keeper{changed: changed, fence: f, log: log, wake: make(chan struct{}, 1), state: unreachable(errors.New("no member was asked yet"))}
}

func unreachable(why error) State {
	reason := ReasonUnreachable
	if errors.Is(why, errNoLeader) {
		reason = ReasonNoQuorum
	}
	return State{Step: Step{Action: Wait, Reason: reason, Message: why.Error()}}
}

// Want sets which masters should have a member and how members are reached. The slices must not be changed afterwards.
func (k *Keeper) Want(a Access, masters []Master) {
	k.mu.Lock()
	same := k.access.equal(a) && slices.Equal(k.masters, masters)
	k.access, k.masters = a, masters
	k.mu.Unlock()
	if !same {
		k.Wake()
	}
}

// Wake makes the Keeper observe at once.
func (k *Keeper) Wake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Ask triggers an observation and waits until it has finished or the context ends. It reports whether it finished;
// failures of members are known then as well.
func (k *Keeper) Ask(ctx context.Context) bool {
	asked := make(chan struct{})
	k.mu.Lock()
	k.waiting = append(k.waiting, asked)
	k.mu.Unlock()
	k.Wake()
	select {
	case <-asked:
		return true
	case <-ctx.Done():
		return false
	}
}

// asking takes over the current waiters and reports whether there are any; the returned function notifies them.
func (k *Keeper) asking() (tell func(), asked bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	waiting := k.waiting
	k.waiting = nil
	return func() {
		for _, asked := range waiting {
			close(asked)
		}
	}, len(waiting) > 0
}

// State returns what is known.
func (k *Keeper) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Run observes, decides and acts until the context ends. At most one Run may be active for a cluster. If two are,
// despite the fence, etcd rejects changes that would cost quorum.
func (k *Keeper) Run(ctx context.Context) {
	c := &clients{}
	defer func() { c.close() }()
	defer k.upkeep.ended.Wait()
	var reached Access
	pause := firstPause
	for ctx.Err() == nil {
		access, masters := k.wanted()
		if !reached.equal(access) {
			c.close()
			c, reached = dial(access, k.fence), access
		}
		before := k.State()
		acted := k.turn(ctx, c, access, masters)
		pause = next(pause, before, k.State())
		if !acted {
			k.rest(ctx, pause)
		}
	}
}

// next returns how long to wait until the next observation.
func next(pause time.Duration, before, now State) time.Duration {
	switch {
	case now.Step.Action != before.Step.Action || now.Step.Reason != before.Step.Reason || !slices.Equal(now.Members, before.Members) ||
		len(now.Alarms) > 0 && len(before.Alarms) == 0:
		return firstPause
	case now.Step.Action == None && len(now.Alarms) == 0:
		return lookAgain
	}
	return min(2*pause, longestPause)
}

func (k *Keeper) wanted() (Access, []Master) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.access, k.masters
}

// turn observes once and carries out the next step. It reports whether a member was added, changed or removed, so that
// the next observation follows at once; upkeep can wait.
func (k *Keeper) turn(ctx context.Context, c *clients, access Access, masters []Master) (acted bool) {
	tell, asked := k.asking()
	if asked {
		k.upkeep.rest()
	}
	// Upkeep begins only at the end of a turn, so no other member can be under maintenance while members are asked.
	under := k.upkeep.now()
	o, err := c.observe(ctx)
	o.markDefragmenting(under)
	if ctx.Err() != nil {
		return false
	}
	k.note(o.members)
	tell()
	if err != nil {
		state := unreachable(err)
		if told := k.upkeep.told(); under != nil && told.Action != None && len(access.Endpoints) == 1 {
			state.Step = told // the only member is under maintenance
		}
		k.setState(state)
		return false
	}
	step := Decide(o.members, masters)
	switch {
	case under != nil && (step.Reason != ReasonNoQuorum || len(o.members) == 1):
		step = k.upkeep.told() // during maintenance, the list does not change
	case step.Action != None:
		step, acted = k.act(ctx, o, step)
	case k.upkeep.rests(o.full()):
		step = k.upkeep.told()
	default:
		step = k.maintain(ctx, access, masters, Maintain(o.databases, o.full()))
	}
	k.setState(State{Members: o.members, Step: step, Alarms: o.alarms})
	return acted
}

// act carries out a step, if there is something to do. A step that etcd rejects becomes a Wait step that says why.
func (k *Keeper) act(ctx context.Context, o observation, step Step) (taken Step, acted bool) {
	if step.Action == None || step.Action == Wait {
		return step, false
	}
	if err := o.do(ctx, step); err != nil {
		// etcd rejects a learner that has not caught up, and a revision that is already compacted. Both are observed
		// again.
		step.Action, step.Message = Wait, fmt.Sprintf("%s; etcd says: %s", step.Message, cause(err))
		return step, false
	}
	k.log.Info("changed etcd", "action", step.Action, "member", step.Member.label(), "master", step.Master.Name, "why", step.Message)
	return step, true
}

// setState publishes a state.
func (k *Keeper) setState(next State) {
	k.mu.Lock()
	changed := !k.state.equal(next)
	k.state = next
	k.mu.Unlock()
	if changed {
		k.changed()
	}
}

// rest waits until the pause is over or there is a reason to observe.
func (k *Keeper) rest(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-k.wake:
	}
}
