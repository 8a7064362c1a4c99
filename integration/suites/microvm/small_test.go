package microvm_test

import (
	"testing"
)

// TestBenchmarksInSmall keeps the benchmarks working that have a server: each has one pair on the same server, and compares
// no times.
func TestBenchmarksInSmall(t *testing.T) {
	s := serve(t)
	step(t, "image", func(t *testing.T) {
		if c := measureImage(t, s); c.most == 0 || c.manifests == 0 || c.keeper == 0 {
			t.Errorf("something was not measured: %+v", c)
		}
		s.deleteAll(t)
	})
	step(t, "start", func(t *testing.T) {
		all := compareStart(t, s, 1)
		if len(all.bare) != 1 || len(all.server) != 1 || all.bare[0] <= 0 || all.server[0] <= 0 {
			t.Errorf("something was not measured: %+v", all)
		}
		s.deleteAll(t)
	})
	step(t, "port", func(t *testing.T) {
		all := comparePort(t, s, 1, mib)
		for _, direction := range []string{"from", "to"} {
			r := all.rates[direction]
			if len(r.bare) != 1 || len(r.port) != 1 || r.bare[0] <= 0 || r.port[0] <= 0 {
				t.Errorf("something was not measured %s the guest: %+v", direction, r)
			}
		}
		if all.keeper == 0 {
			t.Error("the memory of the keeper was not measured")
		}
	})
}

// TestPullInSmall keeps that benchmark working: it has two layers of one MiB and one pair, and compares no times.
func TestPullInSmall(t *testing.T) {
	all := comparePull(t, []int{1, 1}, 1)
	if len(all.tars) != 1 || len(all.pulls) != 1 || all.tars[0] <= 0 || all.pulls[0] <= 0 || all.squashfs == 0 {
		t.Errorf("something was not measured: %+v", all)
	}
}
