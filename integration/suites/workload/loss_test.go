package workload_test

import (
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/workload"
)

// TestRestart: client-go's own watches may wait a minute before they retry. The bounds are far below that and far above
// what a machine with shared CPUs needs.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.connect("restarted", accessTo(mortal))
	old, _ := c.Client()
	for _, outage := range []time.Duration{0, 12 * time.Second} {
		began := time.Now()
		must(t, mortal.StopComponent(managementcluster.APIServer))
		awaitState(t, c, soon, unreachable(workload.Refused))
		noticed := time.Since(began)
		hold(t, c, outage)
		must(t, mortal.StartComponent(t.Context(), managementcluster.APIServer))
		recovered := awaitState(t, c, 2*soon, workload.State{Phase: workload.Connected})
		t.Logf("an outage of %s more than a restart: noticed after %s, recovered %s after the API server was ready", outage, noticed, recovered)
		if noticed > 10*time.Second {
			t.Errorf("the loss was noticed after %s", noticed)
		}
		if recovered > 30*time.Second {
			t.Errorf("recovery took %s", recovered)
		}
	}
	n := makeNode("after-restart")
	w.told("restarted", func() { create(t, direct(t, mortal), n) })
	if err := old.Get(t.Context(), named("x"), n); err == nil {
		t.Error("the client of the lost connection still reads")
	}
}

// hold fails when the cluster has any state other than Refused for the given time.
func hold(t *testing.T, c *workload.Cluster, d time.Duration) {
	t.Helper()
	for began := time.Now(); time.Since(began) < d; time.Sleep(50 * time.Millisecond) {
		if got := c.State(); got.Reason != workload.Refused {
			t.Fatalf("the state is %+v, want Refused", got)
		}
	}
}

// TestBlackHole: packets are no longer answered, and no error reports it.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	p := newProxy(t, addressOf(steady.RESTConfig()))
	w := newWorld(t)
	c := w.connect("hole", accessTo(steady, p.address))
	reader, _ := c.Live()
	p.silent.Store(true)
	began := time.Now()
	if err := reader.Get(t.Context(), named("x"), makeNode("x")); err == nil {
		t.Error("a request got through")
	}
	awaitState(t, c, 45*time.Second, unreachable(workload.Timeout))
	t.Logf("noticed after %s", time.Since(began))
	p.silent.Store(false)
	t.Logf("recovered after %s", awaitState(t, c, 25*time.Second, workload.State{Phase: workload.Connected}))
}

// TestCutConnectionIsNoLoss: a cut connection is no loss when the next one is made at once. Load balancers and proxies
// cut connections.
func TestCutConnectionIsNoLoss(t *testing.T) {
	t.Parallel()
	p := newProxy(t, addressOf(steady.RESTConfig()))
	w := newWorld(t)
	c := w.connect("cut", accessTo(steady, p.address))
	before, _ := c.Client()
	p.cut()
	n := makeNode("after-cut")
	w.told("cut", func() { create(t, direct(t, steady), n) })
	await(t, soon, func() error { return present(c, n.Name, true) })
	if after, _ := c.Client(); after != before {
		t.Error("the cluster was reconnected, although its watches would have recovered without that")
	}
}

func TestOtherAddressesAreTakenOverWithoutANewConnection(t *testing.T) {
	t.Parallel()
	target := addressOf(steady.RESTConfig())
	first, second := newProxy(t, target), newProxy(t, target)
	w := newWorld(t)
	c := w.connect("moving", accessTo(steady, first.address))
	connections := first.accepted.Load()
	if again := w.Ensure(named("moving"), accessTo(steady, second.address)); again != c {
		t.Error("other addresses have made another cluster")
	}
	create(t, direct(t, steady), makeNode("moving"))
	await(t, soon, func() error { return present(c, "moving", true) })
	if first.accepted.Load() != connections || second.accepted.Load() != 0 {
		t.Errorf("connections: %d, then %d and %d", connections, first.accepted.Load(), second.accepted.Load())
	}
	first.cut()
	create(t, direct(t, steady), makeNode("moved"))
	await(t, soon, func() error { return present(c, "moved", true) })
	if second.accepted.Load() == 0 {
		t.Error("the second address was not used")
	}
}

// TestNewAddressIsTriedAtOnce: a new address is tried at once, even after a long back-off.
func TestNewAddressIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := newProxy(t, newClosed(t))
	c := w.Ensure(named("found"), accessTo(steady, server.address))
	await(t, 2*soon, func() error {
		if server.accepted.Load() < 5 {
			return errNoChange
		}
		return nil
	})
	w.Ensure(named("found"), accessTo(steady, server.address, addressOf(steady.RESTConfig())))
	if took := awaitState(t, c, soon, workload.State{Phase: workload.Connected}); took > 8*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestNewCertificateReplacesTheCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.connect("rotated", accessBy(configFor(t, "rotated", "system:masters")))
	if same := w.Ensure(named("rotated"), accessBy(configFor(t, "rotated", "system:masters"))); same == c {
		t.Error("another certificate has not changed the cluster")
	}
	next := w.Get(named("rotated"))
	awaitState(t, next, 3*soon, workload.State{Phase: workload.Connected})
	if _, ok := c.Client(); ok {
		t.Error("the replaced cluster still has a client")
	}
	w.told("rotated", func() { create(t, direct(t, steady), makeNode("rotated")) })
}
