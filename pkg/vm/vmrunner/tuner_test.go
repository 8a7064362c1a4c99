package vmrunner

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// TestTunerReports: a machine is said to be changed from an order until it was carried out, and a problem stays known
// while its change is tried again.
func TestTunerReports(t *testing.T) {
	started := vmconfig.Live{CurrentCPUs: 2, CurrentRAM: 1 << 30, PowerdownTimeout: 90}
	other := started
	other.CurrentCPUs = 3
	tuner := newTuner(Settings{Machine: vmconfig.Machine{MaximumCPUs: 4, MaximumRAM: 1 << 30}}, slog.New(slog.DiscardHandler), &news{}, func(time.Duration) {})
	report := func() (r vmconfig.Report) { tuner.report(&r); return r }
	expect := func(what string, want vmconfig.Report) {
		t.Helper()
		if diff := cmp.Diff(want, report()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	if _, err := vmconfig.DecodeReport([]byte(`{"version":1,"state":"Preparing","wanted":{}}`)); err != nil {
		t.Errorf("a report before the machine is started is refused: %v", err)
	}
	tuner.begin(started, nil)
	expect("started", vmconfig.Report{Wanted: started, CPUs: 2})
	tuner.order(started)
	expect("ordered what it is", vmconfig.Report{Wanted: started, CPUs: 2})
	tuner.order(other)
	expect("ordered something else", vmconfig.Report{Wanted: other, CPUs: 2, Busy: true})
	problems := map[string]string{vmconfig.PartCPUs: "no"}
	tuner.set(func() { tuner.busy, tuner.problems, tuner.done = false, problems, &other })
	tuner.order(other)
	expect("tried", vmconfig.Report{Wanted: other, CPUs: 2, Problems: problems})
	tuner.order(started)
	expect("ordered back", vmconfig.Report{Wanted: started, CPUs: 2, Busy: true})
}

// TestOrderWithoutMediaKeepsThem: only an order that names media, as many as there are drives, changes them.
func TestOrderWithoutMediaKeepsThem(t *testing.T) {
	m := vmconfig.Machine{MaximumCPUs: 1, MaximumRAM: 1 << 30, Drives: []vmconfig.Drive{{Type: vmconfig.DriveCD}}}
	if _, problems := fit(vmconfig.Live{CurrentCPUs: 1, CurrentRAM: 1 << 30}, m); len(problems) > 0 {
		t.Errorf("without media: %v", problems)
	}
	if _, problems := fit(vmconfig.Live{CurrentCPUs: 1, CurrentRAM: 1 << 30, Media: []string{"a", "b"}}, m); problems[vmconfig.PartMedia] == "" {
		t.Error("with a medium more than there are drives: no problem")
	}
}
