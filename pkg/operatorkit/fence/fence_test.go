package fence_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
)

// now is a clock that tests set.
type now struct{ time.Duration }

func (n *now) get() time.Duration { return n.Duration }

func TestTheFenceIsOpenWhileTheLeaseIsHeldForSure(t *testing.T) {
	const term = 10 * time.Second
	for name, test := range map[string]struct {
		happens func(f *fence.Fence, clock *now)
		open    bool
		lost    bool
	}{
		"at the beginning": {happens: func(*fence.Fence, *now) {}},
		"another is seen to lead before this one ever did": {
			happens: func(f *fence.Fence, _ *now) { f.Lose() },
		},
		"it leads after another": {
			happens: func(f *fence.Fence, _ *now) { f.Lose(); f.Renewed(f.Now()) }, open: true,
		},
		"the Lease was renewed": {
			happens: func(f *fence.Fence, clock *now) { f.Renewed(f.Now()); clock.Duration += term - 1 }, open: true,
		},
		"the Lease was not renewed in time": {
			happens: func(f *fence.Fence, clock *now) { f.Renewed(f.Now()); clock.Duration += term },
		},
		"the renewal was long under way": {
			happens: func(f *fence.Fence, clock *now) {
				sent := f.Now()
				clock.Duration += term
				f.Renewed(sent)
			},
		},
		"answers to two renewals come in the wrong order": {
			happens: func(f *fence.Fence, clock *now) {
				f.Renewed(f.Now())
				f.Renewed(f.Now() - term/2)
				clock.Duration += term - 1
			}, open: true,
		},
		"the process was stopped, and no other replica wanted the Lease": {
			happens: func(f *fence.Fence, clock *now) {
				f.Renewed(f.Now())
				clock.Duration += time.Hour
				f.Renewed(f.Now())
			}, open: true,
		},
		"another has taken the Lease": {
			happens: func(f *fence.Fence, _ *now) { f.Renewed(f.Now()); f.Lose() }, lost: true,
		},
		"another has taken the Lease and given it back": {
			happens: func(f *fence.Fence, _ *now) { f.Renewed(f.Now()); f.Lose(); f.Renewed(f.Now()) }, lost: true,
		},
		"the Lease was given up": {
			happens: func(f *fence.Fence, _ *now) { f.Renewed(f.Now()); f.Release() },
		},
		"another takes what was given up": {
			happens: func(f *fence.Fence, _ *now) { f.Renewed(f.Now()); f.Release(); f.Lose() },
		},
		"a renewal is answered after the Lease was given up": {
			happens: func(f *fence.Fence, _ *now) { f.Renewed(f.Now()); f.Release(); f.Renewed(f.Now()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &now{time.Minute}
			f := fence.New("giantswarm/kvm-operator", term, clock.get)
			test.happens(f, clock)
			err := f.Check()
			if open := err == nil; open != test.open {
				t.Errorf("it is open: %t, want %t (%v)", open, test.open, err)
			}
			if err != nil && (!errors.Is(err, fence.ErrRefused) || !strings.Contains(err.Error(), "does not hold the Lease giantswarm/kvm-operator: writes are refused")) {
				t.Errorf("err = %v", err)
			}
			lost := false
			select {
			case <-f.Lost():
				lost = true
			default:
			}
			if lost != test.lost {
				t.Errorf("the Lease is lost: %t, want %t", lost, test.lost)
			}
		})
	}
}

func TestWithoutElectionThereIsNoFence(t *testing.T) {
	var f *fence.Fence
	if err := f.Check(); err != nil {
		t.Errorf("err = %v", err)
	}
	select {
	case <-f.Lost():
		t.Error("what is not there is lost")
	default:
	}
}

// TestTheClockGoesOn, and not backwards.
func TestTheClockGoesOn(t *testing.T) {
	before := fence.SinceBoot()
	time.Sleep(time.Millisecond)
	if passed := fence.SinceBoot() - before; passed < time.Millisecond || before <= 0 {
		t.Errorf("%s passes in a millisecond, after %s", passed, before)
	}
}
