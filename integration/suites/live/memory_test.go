package live_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

const mib = int64(1) << 20

// memory returns the guest's memory in bytes. It is less than the machine's because the guest's kernel uses some.
func (g *guest) memory(t *testing.T) int64 {
	t.Helper()
	kilobytes, err := strconv.ParseInt(g.expect(t, g.said(), `tiny: cpus=\d+ memory=(\d+)`), 10, 64)
	do(t, err)
	return kilobytes << 10
}

func TestBalloon(t *testing.T) {
	t.Parallel()
	m := tiny(t)
	m.Memory = 512
	g := start(t, m, qmp.WithPatience(qmp.Patience{Balloon: time.Second}))
	changes := g.Subscribe(eventBalloonChange)

	if actual, err := g.SetMemory(t.Context(), 256*mib); actual != 512*mib {
		t.Errorf("a guest that has not started has %d", actual)
	} else {
		wants(t, "a guest that has not started", err, qmp.ErrGuestSilent)
	}
	do(t, g.SetBalloon(t.Context(), 320*mib))
	g.boot(t)
	// A change that was requested before the start is done once the driver is there.
	if last := seriesTo(t, changes, 320*mib); len(last) < 1 {
		t.Errorf("the size changed in %d steps", len(last))
	}
	small := g.memory(t)

	for _, step := range []struct{ ask, get int64 }{{448 * mib, 448 * mib}, {256*mib + 1, 256*mib + 4096}, {1 << 40, 512 * mib}} {
		actual, err := g.SetMemory(t.Context(), step.ask)
		if err != nil || actual != step.get {
			t.Fatalf("asked for %d the guest has %d, %v; want %d", step.ask, actual, err, step.get)
		}
		if asked, err := g.Balloon(t.Context()); err != nil || asked != actual {
			t.Errorf("QEMU says %d, %v", asked, err)
		}
		seriesTo(t, changes, step.get)
	}
	g.await(t, "the guest sees its memory again", func() bool { return g.memory(t) > small+180*mib })
}

// seriesTo reads events until one reports the size. QEMU reports one change a second, and always the last one.
func seriesTo(t *testing.T, changes *qmp.Subscription, bytes int64) (series []int64) {
	t.Helper()
	for len(series) == 0 || series[len(series)-1] != bytes {
		series = append(series, next[balloonChange](t, changes, eventBalloonChange).Actual)
	}
	return series
}
