package workload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

func TestEnsureKeepsTheClusterWhileItIsTrustedAlike(t *testing.T) {
	access := Access{Addresses: []string{"a:443"}, ServerName: "master", CA: []byte("ca"), Certificate: []byte("crt"), Key: []byte("key")}
	for name, c := range map[string]struct {
		change func(*Access)
		same   bool
	}{
		"nothing changes":         {change: func(*Access) {}, same: true},
		"other addresses":         {change: func(a *Access) { a.Addresses = []string{"b:443"} }, same: true},
		"no address":              {change: func(a *Access) { a.Addresses = nil }, same: true},
		"another server name":     {change: func(a *Access) { a.ServerName = "other" }},
		"another authority":       {change: func(a *Access) { a.CA = []byte("other") }},
		"another certificate":     {change: func(a *Access) { a.Certificate = []byte("other") }},
		"another key":             {change: func(a *Access) { a.Key = []byte("other") }},
		"the key is gone":         {change: func(a *Access) { a.Key = nil }},
		"an equal copy of the CA": {change: func(a *Access) { a.CA = []byte("ca") }, same: true},
	} {
		t.Run(name, func(t *testing.T) {
			pool := NewPool(Options{})
			id := types.NamespacedName{Namespace: "default", Name: "x"}
			before := pool.Ensure(id, access)
			changed := access
			c.change(&changed)
			after := pool.Ensure(id, changed)
			if same := before == after; same != c.same {
				t.Errorf("the cluster stays: %t, want %t", same, c.same)
			}
			if diff := cmp.Diff(changed.Addresses, after.addresses.order(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if pool.Get(id) != after {
				t.Error("Get returns another cluster than Ensure")
			}
			if replaced := before.life.Err() != nil; replaced == c.same {
				t.Errorf("the first cluster has ended: %t", replaced)
			}
		})
	}
}

// told reads the gauge back: the value by reason.
func told(t *testing.T, cluster string) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "kvm_operator_workload_cluster_reachable" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["cluster"] == cluster {
				values[labels["reason"]] = metric.GetGauge().GetValue()
			}
		}
	}
	return values
}

func TestMetricsTellTheStateOfNow(t *testing.T) {
	pool := NewPool(Options{})
	id := types.NamespacedName{Namespace: "default", Name: "measured"}
	c := pool.Ensure(id, Access{})
	var got []map[string]float64
	step := func() { got = append(got, told(t, "default/measured")) }
	step()
	c.setState(unreachable(errNoAddress, ""), nil)
	step()
	c.setState(State{Phase: Connected}, nil)
	step()
	pool.Forget(id)
	step()
	c.setState(unreachable(errNoAddress, ""), nil)
	step()
	want := []map[string]float64{{"": 0}, {"NoAddress": 0}, {"": 1}, {}, {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the gauge tells something else (-want +got):\n%s", diff)
	}
}

func TestHowLongAClusterIsSilent(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	c := NewPool(Options{Clock: clock}).Ensure(types.NamespacedName{Name: "x"}, Access{})
	var got []time.Duration
	after := func(d time.Duration, next State, s *session) {
		clock.Step(d)
		got = append(got, c.Silent())
		c.setState(next, s)
		got = append(got, c.Silent())
	}
	after(time.Minute, unreachable(errNoAddress, ""), nil)
	after(time.Minute, State{Phase: Connected}, &session{})
	after(time.Hour, unreachable(errNoAddress, ""), nil)
	after(time.Second, unreachable(errNoAddress, ""), nil)
	want := []time.Duration{time.Minute, time.Minute, 2 * time.Minute, 0, 0, 0, time.Second, time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("it is silent for another time (-want +got):\n%s", diff)
	}
}

func TestChangedIsCalledForChangesOnly(t *testing.T) {
	calls := 0
	pool := NewPool(Options{Changed: func(types.NamespacedName) { calls++ }})
	c := pool.Ensure(types.NamespacedName{Name: "x"}, Access{})
	for _, state := range []State{
		{Phase: Connecting}, {Phase: Unreachable, Reason: Refused}, {Phase: Unreachable, Reason: Refused}, {Phase: Unreachable, Reason: Timeout}, {Phase: Connected},
	} {
		c.setState(state, nil)
	}
	if calls != 3 {
		t.Errorf("Changed was called %d times, want 3", calls)
	}
}
