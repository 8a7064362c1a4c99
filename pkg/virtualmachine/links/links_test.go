package links_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine/links"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

var name = types.NamespacedName{Namespace: "default", Name: "a"}

func live(cpus int) vmconfig.Live {
	return vmconfig.Live{CurrentCPUs: cpus, CurrentRAM: 1 << 30, PowerdownTimeout: 90}
}

func runner(instance string) virtualmachine.RunnerID {
	return virtualmachine.RunnerID{Pod: name, UID: "u", Container: "a", Instance: instance}
}

// obeys is a runner that reports each order as done.
func obeys(_ context.Context, _ virtualmachine.RunnerID, in io.Reader, out io.Writer) error {
	report := vmconfig.Report{State: "Running", Wanted: live(1), CPUs: 1}
	lines := bufio.NewScanner(in)
	for {
		line, _ := report.Encode()
		if _, err := out.Write(line); err != nil {
			return err
		}
		if !lines.Scan() {
			return lines.Err()
		}
		order, err := vmconfig.DecodeOrder(lines.Bytes())
		if err != nil {
			return err
		}
		report.Wanted, report.CPUs = order.Live, order.Live.CurrentCPUs
	}
}

// start starts links with one dial, which report a change on the channel.
func start(t *testing.T, dial links.Dial, allowed func() error) (*links.Links, chan struct{}) {
	t.Helper()
	changed := make(chan struct{}, 1000)
	l := links.New(dial, func(types.NamespacedName) { changed <- struct{}{} }, allowed)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { _ = l.Start(ctx) })
	t.Cleanup(func() { cancel(); group.Wait() })
	return l, changed
}

func allow() error { return nil }

// await follows a runner until what is known of it is right.
func await(t *testing.T, l *links.Links, changed <-chan struct{}, id virtualmachine.RunnerID, right func(virtualmachine.Link) bool) {
	t.Helper()
	for deadline := time.After(10 * time.Second); ; {
		l.Follow(name, id)
		known := l.Known(name, id)
		if right(known) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("known is %+v", known)
		}
	}
}

func has(cpus int) func(virtualmachine.Link) bool {
	return func(k virtualmachine.Link) bool { return k.Report != nil && k.Err == nil && k.Report.CPUs == cpus }
}

// TestRunnerIsToldAndReports: an order reaches the runner that runs, and the one that follows it.
func TestRunnerIsToldAndReports(t *testing.T) {
	l, changed := start(t, obeys, allow)
	await(t, l, changed, runner("1"), has(1))
	l.Order(name, live(3))
	await(t, l, changed, runner("1"), has(3))
	// The next runner knows nothing until it gets orders.
	await(t, l, changed, runner("2"), has(1))
	l.Order(name, live(4))
	await(t, l, changed, runner("2"), has(4))
	l.Forget(name)
	l.Order(name, live(2)) // of a machine without a link
}

// TestLinkThatIsCut is made again, and the order is repeated. What is known stays known.
func TestLinkThatIsCut(t *testing.T) {
	var mu sync.Mutex
	var cut context.CancelCauseFunc
	dials := 0
	gone := errors.New("the kubelet restarts")
	l, changed := start(t, func(ctx context.Context, id virtualmachine.RunnerID, in io.Reader, out io.Writer) error {
		mu.Lock()
		dials++
		ctx, cut = context.WithCancelCause(ctx)
		mu.Unlock()
		ended := make(chan error, 1)
		go func() { ended <- obeys(ctx, id, in, out) }()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-ended:
			return err
		}
	}, allow)
	await(t, l, changed, runner("1"), has(1))
	l.Order(name, live(3))
	await(t, l, changed, runner("1"), has(3))
	mu.Lock()
	cut(gone)
	mu.Unlock()
	await(t, l, changed, runner("1"), func(k virtualmachine.Link) bool {
		return k.Err != nil && strings.Contains(k.Err.Error(), gone.Error()) && k.Report != nil && k.Report.CPUs == 3
	})
	await(t, l, changed, runner("1"), has(3))
	mu.Lock()
	defer mu.Unlock()
	if dials != 2 {
		t.Errorf("it was dialled %d times", dials)
	}
}

// TestRunnerThatWasOrderedSomethingElse by a person, or by a replica that led before, gets its orders again.
func TestRunnerThatWasOrderedSomethingElse(t *testing.T) {
	others := make(chan struct{})
	l, changed := start(t, func(ctx context.Context, id virtualmachine.RunnerID, in io.Reader, out io.Writer) error {
		ordersOut, ordersIn := io.Pipe()
		go func() { _, _ = io.Copy(ordersIn, in); _ = ordersIn.Close() }()
		go func() {
			<-others
			line, _ := vmconfig.Order{Live: live(7)}.Encode()
			_, _ = ordersIn.Write(line)
		}()
		return obeys(ctx, id, ordersOut, out)
	}, allow)
	l.Follow(name, runner("1"))
	l.Order(name, live(3))
	await(t, l, changed, runner("1"), has(3))
	close(others)
	await(t, l, changed, runner("1"), has(7))
	await(t, l, changed, runner("1"), has(3))
}

// TestRunnerThatCannotBeReached is dialed with growing pauses, also while an order waits for it.
func TestRunnerThatCannotBeReached(t *testing.T) {
	var dials atomic.Int32
	l, _ := start(t, func(context.Context, virtualmachine.RunnerID, io.Reader, io.Writer) error {
		dials.Add(1)
		return errors.New("exec is forbidden")
	}, allow)
	l.Follow(name, runner("1"))
	l.Order(name, live(3))
	time.Sleep(3 * time.Second)
	if n := dials.Load(); n > 5 {
		t.Errorf("within 3 s, it was dialled %d times", n)
	}
}

// TestReplicaThatDoesNotLeadOrdersNothing, but hears what the runner reports.
func TestReplicaThatDoesNotLeadOrdersNothing(t *testing.T) {
	refused := errors.New("another replica leads")
	l, changed := start(t, obeys, func() error { return refused })
	await(t, l, changed, runner("1"), has(1))
	l.Order(name, live(3))
	await(t, l, changed, runner("1"), func(k virtualmachine.Link) bool {
		return k.Err != nil && strings.Contains(k.Err.Error(), refused.Error())
	})
	if known := l.Known(name, runner("1")); known.Report.CPUs != 1 {
		t.Errorf("the runner got: %+v", known.Report)
	}
}

// TestRunnerThatTalksTooMuch: it costs the operator a bounded number of reconciles, and no memory.
func TestRunnerThatTalksTooMuch(t *testing.T) {
	for what, test := range map[string]struct {
		line  func(i int) string
		words string
	}{
		"a long line":    {func(int) string { return strings.Repeat("x", vmconfig.MaxLine+1) }, "longer than 65536 bytes"},
		"no JSON":        {func(int) string { return "hello\n" }, "a report is not JSON"},
		"another schema": {func(int) string { return `{"version":2}` + "\n" }, "use a runner and an operator of the same major version"},
		"always something else": {func(i int) string {
			line, _ := vmconfig.Report{Wanted: live(1), CPUs: i}.Encode()
			return string(line)
		}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l, changed := start(t, func(ctx context.Context, _ virtualmachine.RunnerID, _ io.Reader, out io.Writer) error {
				for i := 1; ctx.Err() == nil; i++ {
					if _, err := io.WriteString(out, test.line(i)); err != nil {
						return err
					}
				}
				return nil
			}, allow)
			if test.words != "" {
				await(t, l, changed, runner("1"), func(k virtualmachine.Link) bool { return k.Err != nil && strings.Contains(k.Err.Error(), test.words) })
				return
			}
			l.Follow(name, runner("1"))
			time.Sleep(time.Second)
			if n := len(changed); n > 12 {
				t.Errorf("within a second, the controller is woken %d times", n)
			}
		})
	}
}
