package guestagent

import (
	"bufio"
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// serve serves an agent's port. answer gets each line that a client sends, and returns what the agent sends.
func serve(t *testing.T, answer func(line string) string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "a")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			for lines := bufio.NewScanner(connection); lines.Scan(); {
				_, _ = connection.Write([]byte(answer(lines.Text())))
			}
		}
	}()
	return path
}

// synced answers the synchronization, and has others answered.
func synced(others func(line string) string) func(string) string {
	return func(line string) string {
		if _, id, ok := strings.Cut(line, `"id":`); ok {
			return "left over\n\xff{\"return\": " + strings.TrimRight(id, "}") + "}\n"
		}
		return others(line)
	}
}

func dial(t *testing.T, answer func(string) string) *Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c, err := Dial(ctx, serve(t, answer))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestAgentIsAsked(t *testing.T) {
	c := dial(t, synced(func(line string) string {
		switch {
		case strings.Contains(line, "guest-get-osinfo"):
			return `{"return": {"id": "debian", "pretty-name": "Debian\u0007 12", "kernel-release": "` + strings.Repeat("é", 500) + `", "other": 3}}` + "\n"
		case strings.Contains(line, "guest-get-vcpus"):
			return `{"return": [{"logical-id": 0, "online": true, "can-offline": false}, {"logical-id": 1, "online": false}]}` + "\n"
		case strings.Contains(line, `"vcpus":[{"logical-id":1,"online":true}]`):
			return `{"return": 1}` + "\n"
		}
		return `{"error": {"class": "CommandNotFound", "desc": "no"}}` + "\n"
	}))
	info, err := c.OSInfo(t.Context())
	want := OSInfo{ID: "debian", PrettyName: "Debian 12", KernelRelease: strings.Repeat("é", 64)}
	if len(info.KernelRelease) > maxText {
		t.Errorf("a text has %d bytes", len(info.KernelRelease))
	}
	info.KernelRelease = want.KernelRelease
	if diff := cmp.Diff(want, info); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if online, err := c.SwitchOn(t.Context()); online != 2 || err != nil {
		t.Errorf("%d CPUs are on, %v", online, err)
	}
	var refusal *Refusal
	if err := c.call(t.Context(), "guest-fsfreeze-freeze", nil, nil); !errors.As(err, &refusal) || refusal.Description != "no" {
		t.Errorf("a refused command ends with %v", err)
	}
	if _, err := c.OSInfo(t.Context()); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
}

// TestHostileAgent: an agent ends no call late, and fills no memory.
func TestHostileAgent(t *testing.T) {
	for name, answer := range map[string]func(string) string{
		"it is silent":                 func(string) string { return "" },
		"it answers endlessly":         func(string) string { return strings.Repeat("x", 1<<20) },
		"it begins and does not end":   func(string) string { return "\xff" + strings.Repeat("x", 1<<20) },
		"it answers another client":    func(string) string { return "\xff{\"return\": 1}\n" },
		"it answers with another type": func(string) string { return "\xff{\"return\": [1]}\n" },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			begun := time.Now()
			if c, err := Dial(ctx, serve(t, answer)); err == nil {
				_ = c.Close()
				t.Error("it counts as one")
			}
			if took := time.Since(begun); took > 3*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
	for name, answer := range map[string]string{
		"no JSON":      "{\n",
		"another type": `{"return": 3}` + "\n",
		"too long":     `{"return": "` + strings.Repeat("x", 1<<17) + "\"}\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, synced(func(string) string { return answer }))
			if _, err := c.OSInfo(t.Context()); err == nil {
				t.Error("it is believed")
			}
		})
	}
	c := dial(t, synced(func(string) string { return "" }))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := c.OSInfo(ctx); err == nil {
		t.Error("a silent agent answers")
	}
}
