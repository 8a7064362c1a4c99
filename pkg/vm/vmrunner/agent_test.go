package vmrunner

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// guestWithAgent serves the agent's port of a guest, which has CPUs of which one is on.
func guestWithAgent(t *testing.T, path string, cpus int) (*atomic.Int64, func()) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	online := &atomic.Int64{}
	online.Store(1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { _ = connection.Close() })
			go func() {
				for lines := bufio.NewScanner(connection); lines.Scan(); {
					_, _ = connection.Write([]byte(answer(lines.Text(), cpus, online)))
				}
			}()
		}
	}()
	end := func() { cancel(); _ = listener.Close() }
	t.Cleanup(end)
	return online, end
}

func answer(line string, cpus int, online *atomic.Int64) string {
	_, id, syncs := strings.Cut(line, `"id":`)
	switch {
	case syncs:
		return "\xff{\"return\": " + strings.TrimRight(id, "}") + "}\n"
	case strings.Contains(line, "guest-get-osinfo"):
		return `{"return": {"id": "debian"}}` + "\n"
	case strings.Contains(line, "guest-get-vcpus"):
		var list []string
		for i := range cpus {
			state := "false"
			if int64(i) < online.Load() {
				state = "true"
			}
			list = append(list, `{"logical-id": `+string(rune('0'+i))+`, "online": `+state+`}`)
		}
		return `{"return": [` + strings.Join(list, ",") + "]}\n"
	case strings.Contains(line, "guest-set-vcpus"):
		online.Store(int64(cpus))
		return `{"return": 1}` + "\n"
	}
	return `{"return": {}}` + "\n"
}

// TestGuestAgentIsFollowed from its first answer until it is gone, and has the guest use its CPUs.
func TestGuestAgentIsFollowed(t *testing.T) {
	s := example(t)
	c := newCompanions(s, slog.New(slog.DiscardHandler), func(time.Duration) {})
	c.tuner.begin(vmconfig.Live{CurrentCPUs: 2, CurrentRAM: 1 << 30}, nil)
	path := s.Agent()
	if filepath.Dir(path) != s.Run {
		t.Fatalf("the port is at %s", path)
	}
	if c.agent.shutDown(t.Context()) {
		t.Error("a guest without an agent is asked")
	}
	online, end := guestWithAgent(t, path, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); c.agent.run(ctx, nil) }()
	known := func(what string, is func(vmconfig.Report) bool) {
		t.Helper()
		for deadline := time.After(10 * time.Second); ; {
			var r vmconfig.Report
			changed := c.report(&r)
			if is(r) {
				return
			}
			select {
			case <-changed:
			case <-deadline:
				t.Fatalf("%s is not reported: %+v", what, r)
			}
		}
	}
	known("the system", func(r vmconfig.Report) bool { return r.OS != nil && r.OS.ID == "debian" })
	for deadline := time.Now().Add(10 * time.Second); online.Load() != 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the second CPU is not switched on")
		}
	}
	cancel()
	<-ended
	if !c.agent.shutDown(t.Context()) {
		t.Error("a guest with an agent is not asked to shut down")
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	go c.agent.run(ctx, nil)
	known("the system, again", func(r vmconfig.Report) bool { return r.OS != nil })
	end()
	c.tuner.set(func() { c.tuner.cpus = 1 }) // the agent is asked, and does not answer
	known("the end of the agent", func(r vmconfig.Report) bool { return r.OS == nil })
}
