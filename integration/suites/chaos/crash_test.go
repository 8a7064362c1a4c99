package chaos_test

import (
	"context"
	"flag"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/suites/chaos"
)

var every = flag.Int("every", 17, "take every so many-eth `point` of those where an operation can crash; 1 for all")

// TestDrainSurvivesACrashAtEveryWrite: drains, and changes of masters whose members belong to a real etcd, end as they
// do without a crash, even if the operator crashes at any write. No rule is violated on the way.
func TestDrainSurvivesACrashAtEveryWrite(t *testing.T) {
	for operation := range chaos.Operations {
		t.Run(operation, func(t *testing.T) {
			crashes(t, operation, func(ctx context.Context, w *chaos.World) (int, []string, []string) {
				return w.CrashEverywhere(ctx, operation, *every, clusters)
			})
		})
	}
}

// TestFoundingSurvivesACrashAtEveryWrite: etcd is founded even if the operator crashes while it creates a cluster,
// even if masters, with or without machines, are then removed from the spec.
func TestFoundingSurvivesACrashAtEveryWrite(t *testing.T) {
	crashes(t, "a cluster is made", func(ctx context.Context, w *chaos.World) (int, []string, []string) {
		return w.CrashWhileFounding(ctx, *every, clusters)
	})
}

// TestDataSurvivesTheNamespace: the namespace of a cluster is deleted, with everything that was stored there.
func TestDataSurvivesTheNamespace(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *chaos.World) ([]string, []string) {
		return w.LosesNamespace(ctx, clusters[0])
	})
}

func crashes(t *testing.T, operation string, do func(context.Context, *chaos.World) (writes int, violations, suspects []string)) {
	t.Helper()
	inWorld(t, func(ctx context.Context, w *chaos.World) ([]string, []string) {
		writes, violations, suspects := do(ctx, w)
		if writes == 0 {
			t.Error("nothing was done that takes a write")
		}
		t.Logf("%s: %d writes; a crash at and after each of them, of which one in %d was taken", operation, writes, *every)
		return violations, suspects
	})
}

// inWorld does something in its own world.
func inWorld(t *testing.T, do func(context.Context, *chaos.World) (violations, suspects []string)) {
	t.Helper()
	ctx := untilInterrupted(t)
	world, err := chaos.Start(ctx, len(clusters))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := world.Close(); err != nil {
			t.Error(err)
		}
	})
	violations, suspects := do(ctx, world)
	for _, v := range violations {
		t.Error(v)
	}
	suspect(t, suspects)
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx))
	}
}

// clusters share the writes of an operation.
var clusters = []string{"x00", "x01", "x02", "x03", "x04", "x05"}
