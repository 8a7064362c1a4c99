package drain_test

import (
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
)

// going is how far the release of a master is. What is not recorded at the pod is known only to the operator and is
// lost when it restarts.
type going struct {
	// deleted, announced, confirmed and gone are what the API server knows.
	deleted, announced, confirmed, gone bool
	// asked means that an operator has read which masters stay, and may that enough do. Both are reset when the pod
	// changes.
	asked, may bool
}

const (
	masters = 3
	// situations is the number of states that the masters can be in.
	situations = 205
)

var names = [masters]string{"a", "b", "c"}

type situation [masters]going

// stay counts the masters that stay if the i-th goes.
func (s situation) stay(i int) int {
	n := 0
	for j, other := range s {
		if j != i && drain.CountsForQuorum(names[i], s[i].confirmed, drain.Master{
			Pod: names[j], Ready: !other.gone, Deleted: other.deleted, Leaving: other.announced || other.confirmed || other.gone,
		}) {
			n++
		}
	}
	return n
}

// after returns the states that one step leads to: a pod is deleted, an operator does its next step or crashes, or
// another operator takes over.
func (s situation) after() []situation {
	var all []situation
	step := func(i int, change func(*going)) {
		next := s
		change(&next[i])
		all = append(all, next)
	}
	for i, g := range s {
		enough := s.stay(i) > masters/2
		switch {
		case g.gone:
			continue
		case !g.deleted:
			step(i, func(g *going) { g.deleted = true })
			continue
		case g.confirmed:
			if enough {
				step(i, func(g *going) { g.gone = true })
			}
		case !g.announced:
			step(i, func(g *going) { g.announced = true })
		case !g.asked:
			step(i, func(g *going) { g.asked, g.may = true, enough })
		case g.may:
			step(i, func(g *going) { g.confirmed, g.announced, g.asked, g.may = true, false, false, false })
		}
		if g.announced && !enough {
			step(i, func(g *going) { g.announced, g.asked, g.may = false, false, false })
		}
		step(i, func(g *going) { g.asked, g.may = false, false })
	}
	return all
}

// stuck returns whether masters are being deleted and none can ever go, even if all announcements are withdrawn.
func (s situation) stuck() bool {
	deleted := false
	for i := range s {
		s[i].announced = false
	}
	for i, g := range s {
		if g.gone {
			return false
		}
		deleted = deleted || g.deleted
		if g.deleted && s.stay(i) > masters/2 {
			return false
		}
	}
	return deleted
}

// TestNoTwoMastersGoAtATime goes through every order in which the masters of a cluster are deleted and operators decide
// on them, with operators that crash at any point, and shows that a majority stays and that always one master can go.
func TestNoTwoMastersGoAtATime(t *testing.T) {
	seen, queue := map[situation]bool{}, []situation{{}}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if seen[s] {
			continue
		}
		seen[s] = true
		leave := 0
		for _, g := range s {
			if g.confirmed || g.gone {
				leave++
			}
		}
		if leave > 1 {
			t.Fatalf("%d of %d masters go: %+v", leave, masters, s)
		}
		if s.stuck() {
			t.Fatalf("no master can go: %+v", s)
		}
		queue = append(queue, s.after()...)
	}
	t.Logf("%d situations", len(seen))
	if len(seen) != situations {
		t.Errorf("there are %d situations", situations)
	}
}
