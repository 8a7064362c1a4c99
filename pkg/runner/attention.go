package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/qmp"
)

// attention is what the runner hears from QEMU's monitor.
type attention struct {
	mu      sync.Mutex
	monitor *qmp.Client
	events  *qmp.Subscription
	// shutdown is the last event that told of the machine's end, and resets counts its resets.
	shutdown *qmp.Shutdown
	resets   int

	// stopping is closed when the machine was told to stop. From then on its stages bound what QEMU may take.
	stopping chan struct{}
	// attended is closed when nothing more will be heard; silence says why, when it was not QEMU's end.
	attended chan struct{}
	silence  error
}

var (
	errEnded = errors.New("QEMU ended")
	errLost  = errors.New("the connection to QEMU's monitor was lost")
)

// connect opens the monitor, in time with ctx. QEMU makes its socket a moment after its start; one that ends first said
// why on stderr.
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
		return failf(ReasonQEMURefused, "QEMU did not start: %s", g.lastWords())
	}
	return failf(ReasonMonitorSilent, "QEMU runs and does not answer: %w", err)
}

// attend listens to QEMU until it ends, or until it has left a question unanswered for as long as patience is. A lost
// connection is made again in that time. observe is called after each event, and whenever QEMU has been asked.
func (g *guest) attend(path string, patience time.Duration, observe func()) {
	defer close(g.attended)
	defer g.hangUp()
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

// stop tells that the machine is being stopped.
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
	g.hangUp()
	return g.connect(ctx, path)
}

// listen handles events and asks every now and then whether QEMU still answers.
func (g *guest) listen(patience time.Duration, observe func()) error {
	ask := time.NewTicker(min(patience/4, askEvery))
	defer ask.Stop()
	for {
		select {
		case event, ok := <-g.events.Events():
			if !ok {
				return errLost
			}
			g.hear(event)
			observe()
		case <-ask.C:
			if err := g.ask(patience); err != nil {
				return err
			}
			observe()
		}
	}
}

// askEvery is how often QEMU is asked at least how the machine is.
const askEvery = 10 * time.Second

// ask makes sure that QEMU answers. A machine that QEMU stopped because the file system of a disk was full goes on: it
// tries the write once more, and stops again if there is still no room.
func (g *guest) ask(patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	status, err := g.talk().Status(ctx)
	if err == nil && status.Status == machineFull {
		err = g.talk().Cont(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("QEMU has not answered for %s", patience)
	}
	return nil
}

func (g *guest) hear(event qmp.Event) {
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

// talk is the connection to the monitor; it may be one that has ended.
func (g *guest) talk() *qmp.Client {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.monitor
}

func (g *guest) hangUp() { _ = g.talk().Close() }

// wentDown says what ended the machine, if QEMU told so, and whether it was the guest itself.
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
