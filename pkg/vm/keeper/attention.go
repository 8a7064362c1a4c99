package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

// attention is what the keeper learns from QEMU's monitor.
type attention struct {
	mu      sync.Mutex
	monitor *qmp.Client
	events  *qmp.Subscription
	// shutdown is the last event about the machine's end, and resets counts its resets.
	shutdown *qmp.Shutdown
	resets   int

	// stopping is closed when the machine is being stopped. From then on the stages of termination bound how long QEMU
	// may take.
	stopping chan struct{}
	// attended is closed when no more events will be received; silence says why, unless QEMU ended.
	attended chan struct{}
	silence  error
}

var (
	errEnded = errors.New("QEMU ended")
	errLost  = errors.New("the connection to QEMU's monitor was lost")
)

// connect opens the monitor before ctx ends. QEMU creates its socket a moment after its start; a QEMU that ends first
// said why on stderr.
func (g *guest) connect(ctx context.Context, path string) error {
	dialing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-g.exited:
			cancel(errEnded)
		case <-dialing.Done():
		}
	}()
	monitor, err := qmp.Dial(dialing, path)
	if err == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.monitor, g.events = monitor, monitor.Subscribe(qmp.EventReset, qmp.EventShutdown)
		return nil
	}
	if errors.Is(context.Cause(dialing), errEnded) || g.ended() {
		<-g.exited
		return Failf(ReasonQEMURefused, "QEMU did not start: %s", g.lastWords())
	}
	return Failf(ReasonMonitorSilent, "QEMU runs and does not answer: %w", err)
}

// watchMonitor listens to QEMU until it ends, or until it has not responded to a query for as long as patience. A lost
// connection is reopened within that time. watchMonitor calls observe after each event, and after each query to QEMU.
func (g *guest) watchMonitor(path string, patience time.Duration, observe func()) {
	defer close(g.attended)
	defer g.closeMonitor()
	for {
		err := g.listen(patience, observe)
		if errors.Is(err, errLost) || g.stopped() {
			err = g.dialAgain(path, patience)
		}
		switch {
		case g.ended():
			return
		case err != nil && !g.stopped():
			g.silence = err
			return
		}
	}
}

// stop says that the machine is being stopped.
func (g *guest) stop() { close(g.stopping) }

func (g *guest) stopped() bool {
	select {
	case <-g.stopping:
		return true
	default:
		return false
	}
}

func (g *guest) dialAgain(path string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	g.closeMonitor()
	return g.connect(ctx, path)
}

// listen handles events and checks at intervals whether QEMU still responds.
func (g *guest) listen(patience time.Duration, observe func()) error {
	ask := time.NewTicker(min(patience/4, askEvery))
	defer ask.Stop()
	for {
		select {
		case event, ok := <-g.events.Events():
			if !ok {
				return errLost
			}
			g.handle(event)
			observe()
		case <-ask.C:
			if err := g.ask(patience); err != nil {
				return err
			}
			observe()
		}
	}
}

// askEvery is the longest interval at which QEMU is asked for the machine's status.
const askEvery = 10 * time.Second

// ask checks that QEMU responds. It resumes a machine that QEMU paused because the file system of a disk was full: the
// machine retries the write, and pauses again if there is still no room.
func (g *guest) ask(patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	status, err := g.connection().Status(ctx)
	if err == nil && status.Status == machineFull {
		err = g.connection().Cont(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("QEMU has not answered for %s", patience)
	}
	return nil
}

func (g *guest) handle(event qmp.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch event.Name {
	case qmp.EventReset:
		g.resets++
	case qmp.EventShutdown:
		var shutdown qmp.Shutdown
		if err := event.Decode(&shutdown); err == nil {
			g.shutdown = &shutdown
		}
	}
}

// connection returns the connection to the monitor, which may have ended.
func (g *guest) connection() *qmp.Client {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.monitor
}

func (g *guest) closeMonitor() { _ = g.connection().Close() }

// wentDown returns what ended the machine, if QEMU reported it, and whether it was the guest itself.
func (g *guest) wentDown() (by string, guest bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shutdown == nil {
		return "", false
	}
	return g.shutdown.Reason, g.shutdown.Guest
}

func (g *guest) countResets() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.resets
}
