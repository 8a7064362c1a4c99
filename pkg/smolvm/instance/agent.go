package instance

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
)

// How the agent is asked.
const (
	// pingEvery is how often it is asked whether it answers, and pingTimeout how long it may take.
	pingEvery   = 2 * time.Second
	pingTimeout = 3 * time.Second
	// giveUp is for how long it may not answer until a new session is tried, which ends what runs in the old one.
	giveUp = 2 * time.Minute
	// dialEvery is how often a session is tried while there is none. A guest that still boots does not answer.
	dialEvery = 100 * time.Millisecond
	// handshake is how long one try may take.
	handshake = 5 * time.Second
)

// agent is the connection to the agent in the guest. The guest's end is one serial port, so that all requests share
// one session.
type agent struct {
	socket string
	log    *slog.Logger

	mu     sync.Mutex
	client *agentwire.Client
	known  AgentStatus
}

func newAgent(socket string, log *slog.Logger) *agent { return &agent{socket: socket, log: log} }

// run keeps a session until ctx ends. The error says that the guest did not answer at all within timeout.
func (a *agent) run(ctx context.Context, timeout time.Duration) error {
	defer a.drop()
	deadline := time.Now().Add(timeout)
	for ctx.Err() == nil {
		err := a.session(ctx)
		if !a.hasAnswered() && time.Now().After(deadline) {
			return fmt.Errorf("%w: %w", ErrNotReady, err)
		}
		if !sleep(ctx, dialEvery) {
			return nil
		}
	}
	return nil
}

// session lasts until the agent no longer answers.
func (a *agent) session(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", a.socket)
	if err != nil {
		return err
	}
	connecting, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	client, err := agentwire.Connect(connecting, conn)
	if err != nil {
		_ = conn.Close()
		return err
	}
	a.hold(client)
	defer a.drop()
	for answered := time.Now(); ; {
		err := a.ping(ctx, client)
		if err == nil {
			answered = time.Now()
		}
		if err != nil && (client.Err() != nil || time.Since(answered) > giveUp) {
			return err
		}
		if !sleep(ctx, pingEvery) {
			return nil
		}
	}
}

func (a *agent) ping(ctx context.Context, client *agentwire.Client) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	guest, err := client.Ping(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known.Answers != (err == nil) {
		a.log.Info("The guest's agent", "answers", err == nil, "error", err)
	}
	a.known.Answers = err == nil
	if err == nil {
		a.known.Ready, a.known.Guest = true, guest
	}
	return err
}

func (a *agent) hold(client *agentwire.Client) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.client = client
}

// drop ends the session.
func (a *agent) drop() {
	a.mu.Lock()
	client := a.client
	a.client, a.known.Answers = nil, false
	a.mu.Unlock()
	if client != nil {
		_ = client.Close()
	}
}

// talk returns the session. The error is ErrNotReady if there is none.
func (a *agent) talk() (*agentwire.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == nil {
		return nil, ErrNotReady
	}
	return a.client, nil
}

func (a *agent) status() AgentStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known
}

func (a *agent) hasAnswered() bool { return a.status().Ready }

// shutDown asks the agent to shut the guest down, and returns whether it was asked.
func (a *agent) shutDown(ctx context.Context) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", a.socket)
	if err != nil {
		return false
	}
	client, err := agentwire.Connect(ctx, conn)
	if err != nil {
		_ = conn.Close()
		return false
	}
	defer func() { _ = client.Close() }()
	return client.Shutdown(ctx) == nil
}

// sleep waits, and returns whether ctx still lasts.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
