package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/service"
)

// operators are the lives of the operator, one after the other, and sometimes two at a time.
type operators struct {
	world  *World
	random *rand.Rand
	lives  int
	faults map[string]int
	all    []*operator
	// only is the only cluster that they reconcile. It is empty for all.
	only string
}

// operator is one life of the operator.
type operator struct {
	*lab.Operator
	connection *connection
	requests   *requestCounter
}

func newOperators(w *World, random *rand.Rand) *operators {
	return &operators{world: w, random: random, faults: map[string]int{}}
}

// begin begins a life. clock is the operator's own clock, and nil is the right one.
func (o *operators) begin(clock clock.PassiveClock) *operator {
	life := &operator{connection: newConnection(rand.New(rand.NewPCG(o.random.Uint64(), 0))), requests: &requestCounter{sent: map[string][]time.Time{}}}
	var err error
	life.Operator, err = o.world.lab.StartOperator(func(c *service.Config) {
		c.REST = rest.CopyConfig(c.REST)
		c.REST.Wrap(o.world.judge.observe(o.world, life.requests))
		c.REST.Wrap(life.connection.transport)
		c.MachinesOnly, c.Addresses, c.Release, c.Clock = false, o.world.places.Answers, o.world.simulator.release, clock
		if o.only != "" {
			c.Selector = labels.SelectorFromSet(labels.Set{labelRun: o.only})
		}
		c.DrainTimeout, c.EtcdAddresses = time.Hour, o.world.etcdAddresses
	})
	if err != nil {
		// This sends no requests, so an error is a mistake of the test.
		panic(err)
	}
	o.lives++
	o.all = append(o.all, life)
	return life
}

// close ends a life gracefully.
func (o *operator) close(j *judge) {
	if err := o.Close(); err != nil && !errors.Is(err, lab.ErrCrashed) {
		j.violated("the operator ended with an error: %s", err)
	}
}

// kill ends a life as a power failure does. Its remaining work is lost.
func (o *operator) kill() {
	o.connection.crash()
	_ = o.Close() // an error is expected
}

// run runs one life after the other until the context ends, each with faults.
func (o *operators) run(ctx context.Context) {
	for ctx.Err() == nil {
		life := o.begin(o.clock())
		for ctx.Err() == nil && !o.injectFault(ctx, life) {
			life.connection.inject(Calm)
			pause(ctx, o.between(0, time.Second))
		}
		life.kill()
	}
}

// clock returns the clock of a life. One in four is wrong by up to half a day.
func (o *operators) clock() clock.PassiveClock {
	if o.random.IntN(4) > 0 {
		return clock.RealClock{}
	}
	o.faults["wrong clock"]++
	return wrongClock{by: o.between(-12*time.Hour, 12*time.Hour)}
}

// wrongClock differs from the right clock by by.
type wrongClock struct {
	clock.RealClock
	by time.Duration
}

// Now returns the time of the clock.
func (c wrongClock) Now() time.Time { return time.Now().Add(c.by) }

// Since returns how long ago a time was.
func (c wrongClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// injectFault injects one fault and reports whether it has ended the life.
func (o *operators) injectFault(ctx context.Context, life *operator) bool {
	all := []Fault{Calm, Errors, Errors, Gone, Slow, Late, Late, Paused, Crash, Crash, Crash}
	fault := all[o.random.IntN(len(all))]
	o.faults[string(fault)]++
	life.connection.inject(fault)
	switch fault {
	case Crash:
		select {
		case <-ctx.Done():
		case <-life.connection.crashed:
		case <-time.After(3 * time.Second): // it has nothing to write
		}
		return true
	case Paused:
		other := o.begin(nil)
		pause(ctx, o.between(time.Second, 3*time.Second))
		life.connection.inject(Calm)
		pause(ctx, o.between(0, time.Second))
		var group sync.WaitGroup
		group.Go(other.kill)
		group.Go(life.kill)
		group.Wait()
		return true
	}
	pause(ctx, o.between(500*time.Millisecond, 3*time.Second))
	return false
}

func (o *operators) between(least, most time.Duration) time.Duration {
	return least + time.Duration(o.random.Int64N(int64(most-least)))
}

func (o *operators) requests() int {
	sum := 0
	for _, life := range o.all {
		sum += len(life.Requests.All())
	}
	return sum
}

// busiest returns the request of one life that came closest to its limit.
func (o *operators) busiest() string {
	most, limit, what := 0, 1, ""
	for _, life := range o.all {
		if n, l, w := life.requests.closest(); n*limit > most*l {
			most, limit, what = n, l, w
		}
	}
	return fmt.Sprintf("%d of %d in %s, %s", most, limit, countingPeriod, what)
}

// restFor is how long a settled world is watched for requests. restWithin is how long the operator may take to come to
// rest.
const (
	restFor    = 3 * time.Second
	restWithin = 3 * time.Minute
)

// costsNothing records a violation if the last life does not come to rest.
func (o *operators) costsNothing(ctx context.Context, j *judge) {
	last := o.all[len(o.all)-1]
	count, since := -1, time.Now()
	for began := time.Now(); time.Since(began) < restWithin && ctx.Err() == nil; pause(ctx, 50*time.Millisecond) {
		if now := len(last.Requests.All()); now != count {
			count, since = now, time.Now()
		}
		if time.Since(since) > restFor {
			return
		}
	}
	all := last.Requests.All()
	j.violated("the operator does not come to rest; its last requests: %v", all[max(0, len(all)-20):])
}
