package workload_test

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/workload"
)

// stacks returns the stacks of all goroutines.
func stacks() string {
	buffer := make([]byte, 16<<20)
	return string(buffer[:runtime.Stack(buffer, true)])
}

// goroutines counts the goroutines that work for pools.
func goroutines() int {
	count := 0
	for _, stack := range strings.Split(stacks(), "\n\n") {
		if strings.Contains(stack, "pkg/cluster/workload") || strings.Contains(stack, "tools/cache") || strings.Contains(stack, "net/http") {
			count++
		}
	}
	return count
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// TestForgottenClusterLeavesNothingBehind covers clusters in every state.
func TestForgottenClusterLeavesNothingBehind(t *testing.T) {
	hole := newProxy(t, addressOf(steady.RESTConfig()))
	for name, access := range map[string]workload.Access{
		"connected":  accessTo(steady),
		"black hole": accessTo(steady, hole.address),
		"refused":    accessTo(steady, newClosed(t)),
		"mute":       accessTo(steady, newMute(t)),
		"forbidden":  accessBy(configFor(t, "unprivileged")),
		"not ready":  newStranger(t, serverName, time.Now(), http.StatusInternalServerError).access(),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			await(t, soon, func() error {
				if !strings.Contains(stacks(), "(*Pool).Start(") {
					return errors.New("the pool is not started")
				}
				return nil
			})
			before := goroutines()
			c := w.Ensure(named("forgotten"), access)
			await(t, soon, func() error {
				if goroutines() == before {
					return fmt.Errorf("nothing has begun")
				}
				if phase := c.State().Phase; name != "mute" && phase == workload.Connecting {
					return fmt.Errorf("the cluster is %s", phase)
				}
				return nil
			})
			hole.silent.Store(name == "black hole")
			w.Forget(named("forgotten"))
			took := await(t, soon, func() error {
				if now := goroutines(); now > before {
					return fmt.Errorf("%d goroutines, %d before:\n%s", now, before, stacks())
				}
				return nil
			})
			t.Logf("gone after %s", took)
			if w.Get(named("forgotten")) != nil {
				t.Error("the cluster is still known")
			}
		})
	}
}

// connectAll ensures the clusters and returns how long it took until the healthy ones were connected.
func connectAll(t *testing.T, w *world, healthy int, broken []workload.Access) time.Duration {
	t.Helper()
	began := time.Now()
	for i, access := range broken {
		w.Ensure(named(fmt.Sprintf("broken%d", i)), access)
	}
	for i := range healthy {
		w.Ensure(named(fmt.Sprintf("c%d", i)), accessTo(steady))
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("Ensure has taken %s for all: it must not wait", took)
	}
	await(t, time.Minute, func() error {
		for i := range healthy {
			if c := w.Get(named(fmt.Sprintf("c%d", i))); c.State().Phase != workload.Connected {
				return fmt.Errorf("cluster %d is %+v", i, c.State())
			}
		}
		return nil
	})
	return time.Since(began)
}

const (
	// all is the number of clusters, and rounds is how often they are connected with and without broken ones. The best
	// of some rounds is more reliable than a single one on a machine with other work.
	all    = 50
	rounds = 3
)

// TestBrokenClustersDelayNoOther has fifty clusters, one with each kind of fault. It connects the healthy ones without
// the broken ones and beside them.
func TestBrokenClustersDelayNoOther(t *testing.T) {
	slow := newProxy(t, addressOf(steady.RESTConfig()))
	slow.delay.Store(int64(3 * time.Second))
	broken := []workload.Access{
		accessTo(steady, newClosed(t)), accessTo(steady, newMute(t)), accessTo(steady, slow.address),
		newStranger(t, serverName, time.Now().AddDate(-2, 0, 0), http.StatusOK).access(),
		newStranger(t, "other.example.com", time.Now(), http.StatusOK).access(),
	}
	without, with := time.Hour, time.Hour
	for range rounds {
		calm, rough := newWorld(t), newWorld(t)
		without = min(without, connectAll(t, calm, all-len(broken), nil))
		calm.stop()
		with = min(with, connectAll(t, rough, all-len(broken), broken))
		rough.stop()
	}
	t.Logf("%d clusters: %s, and beside %d broken ones: %s", all-len(broken), without, len(broken), with)
	if with > without*3/2+200*time.Millisecond {
		t.Errorf("beside broken clusters it takes %s, without them %s", with, without)
	}
}

// TestFiftyClustersAreSmall in memory and goroutines, and changes are reported for all at once.
func TestFiftyClustersAreSmall(t *testing.T) {
	w := newWorld(t)
	idle, before := heap(), goroutines()
	connectAll(t, w, all, nil)
	perCluster, routines := (heap()-idle)/all, (goroutines()-before)/all
	t.Logf("%d KiB and %d goroutines each, for %d kinds", perCluster>>10, routines, len(kinds())+2)
	if perCluster > 4<<20 {
		t.Errorf("a cluster takes %d KiB", perCluster>>10)
	}
	if most := 20 * (len(kinds()) + 2); routines > most {
		t.Errorf("a cluster has %d goroutines, want at most %d", routines, most)
	}
	told := map[string]int{}
	for i := range all {
		told[fmt.Sprintf("c%d", i)] = w.of(fmt.Sprintf("c%d", i))
	}
	began := time.Now()
	create(t, direct(t, steady), makeNode("noticed-by-all"))
	await(t, soon, func() error {
		for name, n := range told {
			if w.of(name) == n {
				return fmt.Errorf("cluster %s: %w", name, errNoChange)
			}
		}
		return nil
	})
	t.Logf("all were notified of a Node after %s", time.Since(began))
}

// TestSlowClusterIsConnectedAllTheSame: the cluster is connected and does not delay others.
func TestSlowClusterIsConnectedAllTheSame(t *testing.T) {
	t.Parallel()
	slow := newProxy(t, addressOf(steady.RESTConfig()))
	slow.delay.Store(int64(3 * time.Second))
	w := newWorld(t)
	c := w.Ensure(named("slow"), accessTo(steady, slow.address))
	began := time.Now()
	w.connect("fast", accessTo(steady))
	fast := time.Since(began)
	if phase := c.State().Phase; phase != workload.Connecting || fast > 2*soon {
		t.Errorf("when the other cluster was connected, after %s, the slow one was %s", fast, phase)
	}
	awaitState(t, c, 4*soon, workload.State{Phase: workload.Connected})
	t.Logf("connected after %s, the other one after %s", time.Since(began), fast)
}
