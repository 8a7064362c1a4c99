package drain_test

import (
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/drain"
)

// going is how far a master is on its way out. What is not noted here lives with the operator only and ends with it.
type going struct {
	// deleted, announced and gone are what the API server knows; a machine that is gone has been let go.
	deleted, announced, gone bool
	// asked says that an operator has asked who stays, after the announcement, and may lets the machine go.
	asked, may bool
}

const masters = 3

type course [masters]going

// TestNoTwoMastersGoAtATime goes through every order in which the masters of a cluster are deleted and operators decide on them, with
// operators that end anywhere, and shows that a majority stays and that somebody can always go.
func TestNoTwoMastersGoAtATime(t *testing.T) {
	names := [masters]string{"a", "b", "c"}
	stays := func(c course, i int) int {
		n := 0
		for j, other := range c {
			if j != i && drain.Stays(names[i], drain.Master{
				Pod: names[j], Ready: !other.gone, Deleted: other.deleted, Leaving: other.announced || other.gone,
			}) {
				n++
			}
		}
		return n
	}
	seen, queue := map[course]bool{}, []course{{}}
	for len(queue) > 0 {
		c := queue[0]
		queue = queue[1:]
		if seen[c] {
			continue
		}
		seen[c] = true
		gone, progress, deleted := 0, false, 0
		visit := func(i int, change func(*going)) {
			next := c
			change(&next[i])
			queue = append(queue, next)
		}
		for i, g := range c {
			if g.gone {
				gone++
				continue
			}
			switch {
			case !g.deleted:
				visit(i, func(g *going) { g.deleted = true })
				continue
			case !g.announced:
				visit(i, func(g *going) { g.announced = true })
			case !g.asked:
				visit(i, func(g *going) { g.asked, g.may = true, stays(c, i) > masters/2 })
			case g.may:
				visit(i, func(g *going) { g.gone, g.asked, g.may = true, false, false })
			default:
				visit(i, func(g *going) { g.announced, g.asked = false, false })
			}
			deleted++
			// The operator ends, and the next one begins with what the API server knows.
			visit(i, func(g *going) { g.asked, g.may = false, false })
			alone := c
			for j := range alone {
				if j != i && !alone[j].gone {
					alone[j].announced, alone[j].asked, alone[j].may = false, false, false
				}
			}
			progress = progress || stays(alone, i) > masters/2
		}
		if gone > 1 {
			t.Fatalf("%d of %d masters are gone: %+v", gone, masters, c)
		}
		if gone == 0 && deleted > 0 && !progress {
			t.Fatalf("nobody can go, even if all others step back: %+v", c)
		}
	}
	t.Logf("%d situations", len(seen))
}
