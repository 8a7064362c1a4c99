package vmrunner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

func TestWhatARunnerDoesFirst(t *testing.T) {
	for _, test := range []struct {
		marked, stops bool
		parked, most  time.Duration
		want          beginning
	}{
		{false, false, 0, ParkedFor, boots},
		{false, true, 0, ParkedFor, boots},
		{false, true, time.Hour, 0, boots},
		{true, false, 0, ParkedFor, waits},
		{true, false, ParkedFor - 1, ParkedFor, waits},
		{true, false, ParkedFor, ParkedFor, boots},
		{true, false, 0, 0, boots},
		{true, true, 0, ParkedFor, stays},
		{true, true, time.Hour, ParkedFor, stays},
		{true, true, 0, 0, stays},
	} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			if got := begin(test.marked, test.stops, test.parked, test.most); got != test.want {
				t.Errorf("it %s, want %s", got, test.want)
			}
		})
	}
}

// TestOnlyAGuestThatShutItselfDownIsNoted: after every other end, the next runner starts the machine.
func TestOnlyAGuestThatShutItselfDownIsNoted(t *testing.T) {
	for reason, want := range map[keeper.Reason]bool{
		keeper.ReasonGuestShutDown: true, keeper.ReasonPoweredDown: false, keeper.ReasonQEMUCrashed: false, keeper.ReasonGuestKilled: false,
	} {
		s := example(t)
		runner(s).ended(keeper.End{Reason: reason})
		if _, err := os.Lstat(s.mark()); (err == nil) != want {
			t.Errorf("after %s the mark is %v", reason, err)
		}
	}
}

func TestMarkThatCannotBeWrittenMeansAReboot(t *testing.T) {
	s := example(t)
	write(t, s.State, "no directory")
	runner(s).ended(keeper.End{Reason: keeper.ReasonGuestShutDown})
	err := prepare(t, s, func(_ context.Context, p *preparation) error {
		if p.marked() {
			t.Error("there is a mark")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func runner(s Settings) *Runner {
	return New(s, slog.New(slog.DiscardHandler), io.Discard, io.Discard)
}

// TestMachineIsStartedAgainAfterAWhile, which another runner in the same pod does.
func TestMachineIsStartedAgainAfterAWhile(t *testing.T) {
	s := example(t)
	s.ParkedFor = 1500 * time.Millisecond
	runner(s).ended(keeper.End{Reason: keeper.ReasonGuestShutDown})
	begin := time.Now()
	if end := start(s); end.Reason != keeper.ReasonQEMUMissing {
		t.Errorf("it ended with %+v", end)
	}
	if took := time.Since(begin); took < s.ParkedFor {
		t.Errorf("it was parked for %s", took)
	}
	if _, err := os.Lstat(s.mark()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a machine that is started has a mark: %v", err)
	}
	if begin := time.Now(); start(s).Reason != keeper.ReasonQEMUMissing || time.Since(begin) > time.Second {
		t.Error("it was parked without a mark")
	}
}

// TestMachineOfAGuestThatStopsStaysParked until the pod ends, or until the guest's shutdown no longer stops it.
func TestMachineOfAGuestThatStopsStaysParked(t *testing.T) {
	s := example(t)
	s.ParkedFor = 0
	configure(t, s, func(l *vmconfig.Live) { l.GuestShutdownStops = true })
	r := runner(s)
	r.ended(keeper.End{Reason: keeper.ReasonGuestShutDown})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan keeper.End, 1)
	go func() { ended <- r.Run(ctx) }()
	awaitParked(t, s)
	stop()
	if end := <-ended; end.Reason != keeper.ReasonGuestShutDown {
		t.Errorf("it ended with %+v", end)
	}
	if _, err := os.Lstat(s.mark()); err != nil {
		t.Errorf("a machine that was not started has lost its mark: %v", err)
	}

	go func() { ended <- runner(s).Run(t.Context()) }()
	awaitParked(t, s)
	configure(t, s, func(l *vmconfig.Live) { l.GuestShutdownStops = false })
	if end := <-ended; end.Reason != keeper.ReasonQEMUMissing {
		t.Errorf("it ended with %+v", end)
	}
}

// awaitParked waits until the runner says on its control socket that the machine is parked.
func awaitParked(t *testing.T, s Settings) {
	t.Helper()
	var status keeper.Status
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := keeper.Client{Socket: s.Run + "/" + keeper.SocketName}.Status(t.Context(), &status)
		if err == nil && status.State == keeper.StateParked {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is not parked: %+v, %v", status, err)
		}
	}
	if status.Ready || !status.Live || !strings.Contains(status.Unready, "shut itself down") {
		t.Errorf("the parked machine is %+v", status)
	}
}
