package qmp_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
)

func TestDialWaitsForTheSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "qmp")
	dialed := make(chan error)
	go func() {
		c, err := qmp.Dial(t.Context(), path)
		if err == nil {
			err = c.Close()
		}
		dialed <- err
	}()
	select {
	case err := <-dialed:
		t.Fatalf("it does not wait for the socket: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	serve(t, path, (*peer).greet)
	if err := <-dialed; err != nil {
		t.Errorf("it does not connect when the socket is there: %v", err)
	}
	noGoroutineLeft(t)
}

func TestDialOutlivesABeginningThatComesToNothing(t *testing.T) {
	path := listen(t, func(*peer) {}, func(p *peer) { p.say(greeting) }, (*peer).greet)
	c, err := qmp.Dial(t.Context(), path)
	if err != nil {
		t.Fatalf("it gives up: %v", err)
	}
	c.Close()
	noGoroutineLeft(t)
}

func TestDialEndsWithItsContext(t *testing.T) {
	silent := func(p *peer) { p.next() }
	stale := filepath.Join(t.TempDir(), "stale")
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		path string
		says string
	}{
		"there is no socket":              {filepath.Join(t.TempDir(), "none"), "no such file"},
		"a file without listener":         {stale, "connection refused"},
		"another client has the monitor":  {listen(t, silent), "does another client hold the monitor?"},
		"capabilities are never answered": {listen(t, func(p *peer) { p.say(greeting); p.next(); p.next() }), "qmp_capabilities"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			c, err := qmp.Dial(ctx, test.path)
			if c != nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("it returns %v, %v; want an error of the deadline that says %q", c, err, test.says)
			}
			noGoroutineLeft(t)
		})
	}
}

func TestDialRefusesAtOnceWhatWillNeverBeAMonitor(t *testing.T) {
	says := func(lines ...string) func(*peer) {
		return func(p *peer) {
			for _, line := range lines {
				p.say("%s", line)
			}
			p.next()
		}
	}
	for name, script := range map[string]func(*peer){
		"no JSON":                  says("SSH-2.0-OpenSSH_9.2"),
		"JSON that says nothing":   says(`{}`),
		"no object":                says(`[]`),
		"an event before greeting": says(`{"event": "STOP"}`),
		"a reply before greeting":  says(`{"return": {}, "id": 1}`),
		"two greetings":            says(greeting, greeting),
	} {
		t.Run(name, func(t *testing.T) {
			var garbage *qmp.ProtocolError
			_, err := qmp.Dial(t.Context(), listen(t, script))
			if !errors.As(err, &garbage) || !errors.Is(err, qmp.ErrClosed) {
				t.Errorf("it returns %v; want a ProtocolError within ErrClosed", err)
			}
			noGoroutineLeft(t)
		})
	}
	if _, err := qmp.Dial(t.Context(), "/tmp/"+strings.Repeat("long", 40)); err == nil {
		t.Error("it connects to a path that no socket can have")
	}
	refused := listen(t, func(p *peer) {
		p.say(greeting)
		r, _ := p.next()
		p.refuse(r, "no")
		p.next()
	})
	var refusal *qmp.CommandError
	if _, err := qmp.Dial(t.Context(), refused); !errors.As(err, &refusal) {
		t.Errorf("refused capabilities are %v; want a CommandError", err)
	}
}
