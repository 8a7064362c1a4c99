package chaos_test

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/kvm-operator/kvm-operator/integration/suites/chaos"
)

var (
	runs    = flag.Int("runs", 30, "the number of chaos `runs`; 0 for no end but that of -for")
	atOnce  = flag.Int("at-once", 50, "how many chaos `runs` there are at a time")
	first   = flag.Uint64("seed", 1, "the `seed` of the first chaos run; those of the others follow")
	strict  = flag.Bool("strict", true, "fail on suspects, too")
	lasting = flag.Duration("for", 0, "begin no batch of chaos runs later than this after the first; for example 1h; 0 for no such end")
)

// TestRunsWithFaults runs seeded chaos runs: whatever faults occur, no rule is ever violated, and in the end each
// cluster is what its KVMConfig says.
func TestRunsWithFaults(t *testing.T) {
	klog.SetLogger(logr.Discard())
	ctx := untilInterrupted(t)
	world, err := chaos.Start(ctx, *atOnce)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := world.Close(); err != nil {
			t.Error(err)
		}
	})
	began, done := time.Now(), 0
	for ctx.Err() == nil && (*runs == 0 || done < *runs) && (*lasting == 0 || time.Since(began) < *lasting) {
		n := *atOnce
		if *runs > 0 {
			n = min(n, *runs-done)
		}
		seed := *first + uint64(done)
		r := world.Batch(ctx, seed, n)
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		done += n
		fmt.Printf("%6.0fs  %d chaos runs from seed %d: %d lives of the operator with %v, %d requests (%s); %s of faults, %s until all were settled; %d violations\n",
			time.Since(began).Seconds(), n, seed, r.Lives, r.Faults, r.Requests, r.Busiest,
			r.Stormy.Round(time.Second), r.Settled.Round(time.Second), len(r.Violations))
		for _, v := range r.Violations {
			t.Error(v)
		}
		suspect(t, r.Suspects)
		if len(r.Violations) > 0 {
			t.Fatalf("reproduce it with: go test ./integration/suites/chaos -seed=%d -runs=%d -at-once=%d", seed, n, *atOnce)
		}
	}
	violations, suspects := world.End(ctx)
	for _, v := range violations {
		t.Error(v)
	}
	suspect(t, suspects)
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx))
	}
	fmt.Printf("%d chaos runs without a violation\n", done)
	if done < *runs {
		fmt.Printf("LEFT OUT: %d of %d chaos runs, because the time was up: go test ./integration/suites/chaos -run TestRunsWithFaults -seed=%d -runs=%d\n",
			*runs-done, *runs, *first+uint64(done), *runs-done)
	}
}

// suspect logs suspects. It fails the test unless -strict=false.
func suspect(t *testing.T, suspects []string) {
	t.Helper()
	for _, s := range suspects {
		t.Log("SUSPECT: " + s)
		if *strict {
			t.Fail()
		}
	}
}
