package election_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/election"
)

// holds is how long the Lease is valid by default.
const holds = 15 * time.Second

// candidate is a replica that wants to lead.
type candidate struct {
	*election.Lock
	*way
	leads chan struct{}
	end   context.CancelFunc
}

// run runs client-go's elector for a replica of the version.
func run(t *testing.T, l *leases, name, version string) *candidate {
	t.Helper()
	began := time.Now()
	c := &candidate{way: &way{leases: l}, leads: make(chan struct{})}
	c.Lock = replica(l, name, version, func() time.Duration { return time.Since(began) + 1 })
	c.Leases = c.way
	deadline, retry := election.Pace(holds)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: c.Lock, LeaseDuration: holds, RenewDeadline: deadline, RetryPeriod: retry, ReleaseOnCancel: true, Name: name,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(c.leads) }, OnStoppedLeading: func() {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.end = cancel
	go elector.Run(ctx)
	return c
}

// kill ends a replica without releasing the Lease.
func (c *candidate) kill() {
	c.dead.Store(true)
	c.end()
}

// way is one replica's connection to the API server.
type way struct {
	*leases
	dead atomic.Bool
}

var errDead = errors.New("a dead process asks nothing")

// Get implements election.Leases.
func (w *way) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	if w.dead.Load() {
		return nil, errDead
	}
	return w.leases.Get(ctx, name, options)
}

// Update implements election.Leases.
func (w *way) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if w.dead.Load() {
		return nil, errDead
	}
	return w.leases.Update(ctx, lease, options)
}

// TestHowSoonAnotherLeads depending on what happened to the leader, and on versions.
func TestHowSoonAnotherLeads(t *testing.T) {
	const courtesy = time.Minute
	for name, test := range map[string]struct {
		leader, other string // versions
		killed        bool
		least, most   time.Duration
	}{
		"the leader gives up":                {leader: "4.0.0", other: "4.0.0", most: 2 * time.Second},
		"the leader is killed":               {leader: "4.0.0", other: "4.0.0", killed: true, least: holds - 1*time.Second, most: holds + 4*time.Second},
		"an older one gives up":              {leader: "4.0.0", other: "4.1.0", most: 2 * time.Second},
		"an older one is killed":             {leader: "4.0.0", other: "4.1.0", killed: true, least: holds - 1*time.Second, most: holds + 4*time.Second},
		"a newer one gives up":               {leader: "4.1.0", other: "4.0.0", least: courtesy, most: courtesy + 4*time.Second},
		"a newer one is killed":              {leader: "4.1.0", other: "4.0.0", killed: true, least: courtesy - 1*time.Second, most: courtesy + 4*time.Second},
		"one of another build gives up":      {leader: "4.0.0-b2", other: "4.0.0-a1", most: 2 * time.Second},
		"a build of a newer one gives up":    {leader: "4.1.0-dev", other: "4.0.0", least: courtesy, most: courtesy + 4*time.Second},
		"one of an unknown version gives up": {leader: "unknown", other: "4.0.0", most: 2 * time.Second},
		"one of an unknown version waits":    {leader: "4.0.0", other: "unknown", most: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &leases{}
				leader := run(t, server, "a", test.leader)
				<-leader.leads
				other := run(t, server, "b", test.other)
				time.Sleep(time.Minute)
				select {
				case <-other.leads:
					t.Fatal("two lead")
				default:
				}
				ended := time.Now()
				if test.killed {
					leader.kill()
				} else {
					leader.end()
				}
				<-other.leads
				if leader.Fence.Check() == nil {
					t.Error("both may write")
				}
				if took := time.Since(ended); took < test.least || took > test.most {
					t.Errorf("another leads after %s, want %s to %s", took, test.least, test.most)
				}
				other.end()
				synctest.Wait()
			})
		})
	}
}

// TestAnOlderReplicaLetsTheNewerOneComeBack that was killed and is restarted within the minute.
func TestAnOlderReplicaLetsTheNewerOneComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &leases{}
		newer := run(t, server, "a", "4.1.0")
		<-newer.leads
		older := run(t, server, "b", "4.0.0")
		time.Sleep(time.Minute)
		newer.kill()
		time.Sleep(30 * time.Second)
		restarted := run(t, server, "c", "4.1.0")
		select {
		case <-restarted.leads:
		case <-older.leads:
			t.Error("the older one leads")
		}
		restarted.end()
		older.end()
		synctest.Wait()
	})
}
