package etcd_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
)

// TestSizes: one, three, five, three and one master, with a client that writes.
func TestSizes(t *testing.T) {
	t.Parallel()
	c := found(t, 1)
	for _, numbers := range [][]int{{1, 2, 3}, {1, 2, 3, 4, 5}, {2, 4, 5}, {4}} {
		c.want(numbers...)
		c.await(etcd.None, "")
		t.Logf("masters %v", numbers)
	}
	c.nothingLost()
}

// TestFounderThatComesLater: two of three founders are a quorum, and the third starts with its machine.
func TestFounderThatComesLater(t *testing.T) {
	t.Parallel()
	c := prepare(t, 1, 2, 3)
	c.kill(3, true)
	c.start()
	c.await(etcd.Wait, etcd.ReasonMemberUnhealthy)
	c.kill(3, false)
	c.await(etcd.None, "")
	c.nothingLost()
}

// TestReplacement replaces a master that is dead, a healthy one and the leader.
func TestReplacement(t *testing.T) {
	t.Parallel()
	c := found(t, 1, 2, 3)
	c.kill(1, true)
	c.await(etcd.Wait, etcd.ReasonMemberUnhealthy)
	c.want(2, 3, 4)
	c.await(etcd.None, "")
	t.Log("the dead member is replaced")
	c.want(3, 4, 5)
	c.await(etcd.None, "")
	t.Log("a healthy member is replaced")
	s := c.await(etcd.None, "")
	numbers := []int{6}
	for _, m := range s.Members {
		if !m.Leader {
			numbers = append(numbers, number(m.Name))
		}
	}
	c.want(numbers...)
	c.await(etcd.None, "")
	t.Log("the leader is replaced")
	c.nothingLost()
}

// TestMajorityIsNotGivenAway: while two of three masters are dead, nothing changes, whatever masters are wanted. A
// master that comes back is accepted.
func TestMajorityIsNotGivenAway(t *testing.T) {
	t.Parallel()
	c := found(t, 1, 2, 3)
	c.mayLose.Store(true)
	c.kill(1, true)
	c.kill(2, true)
	c.await(etcd.Wait, etcd.ReasonNoQuorum)
	c.want(3, 4, 5)
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(50 * time.Millisecond) {
		if s := c.current().State(); s.Known() {
			t.Fatalf("a list without a majority: %+v", s)
		}
	}
	c.kill(1, false)
	c.await(etcd.None, "")
	c.nothingLost()
}

// TestOneThatIsNeededIsNotTakenOut: the master that should stay is dead, so the masters with the data stay until it is
// back.
func TestOneThatIsNeededIsNotTakenOut(t *testing.T) {
	t.Parallel()
	c := found(t, 1, 2, 3)
	c.kill(1, true)
	c.await(etcd.Wait, etcd.ReasonMemberUnhealthy)
	c.want(1)
	c.await(etcd.Wait, etcd.ReasonLeaving)
	c.kill(1, false)
	c.await(etcd.None, "")
	c.nothingLost()
}

// TestLearnerThatDies: a machine that fails while it joins is started again, and one that is no longer wanted leaves no
// trace.
func TestLearnerThatDies(t *testing.T) {
	t.Parallel()
	c := found(t, 1)
	c.kill(2, true)
	c.want(1, 2, 3)
	c.await(etcd.Wait, etcd.ReasonJoining)
	c.want(1, 3, 4)
	c.await(etcd.None, "")
	c.nothingLost()
}

// TestOperatorsComeAndGo: the operator is killed repeatedly, an old one continues beside its successor, members die and
// come back, and masters change the whole time.
func TestOperatorsComeAndGo(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c := found(t, 1, 2, 3)
	ends := []context.CancelFunc{c.end}
	for _, numbers := range [][]int{{1, 2, 3, 4, 5}, {1, 5, 6}, {5, 6, 7}, {7}, {7, 8, 9}} {
		c.want(numbers...)
		for range 4 {
			time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
			next := c.keep(t.Context())
			if r.IntN(2) == 0 {
				for _, end := range ends {
					end()
				}
				ends = nil
			}
			ends = append(ends, next)
			if r.IntN(3) == 0 {
				c.kill(numbers[r.IntN(len(numbers))], false)
			}
		}
		// An operator that no longer leads ends. Until then it wants the masters of its time.
		for _, end := range ends[:len(ends)-1] {
			end()
		}
		ends = ends[len(ends)-1:]
		c.await(etcd.None, "")
		t.Logf("masters %v", numbers)
	}
	c.nothingLost()
}
