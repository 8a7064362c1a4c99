package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

func TestConsoleKeepsTheLastOfIt(t *testing.T) {
	var log bytes.Buffer
	c := newConsole(&log)
	var all strings.Builder
	for i := range 20000 {
		line := fmt.Sprintf("line %d\n", i)
		all.WriteString(line)
		if n, err := io.WriteString(c, line); err != nil || n != len(line) {
			t.Fatal(n, err)
		}
	}
	if log.String() != all.String() {
		t.Error("the log misses a part")
	}
	if got, want := string(c.tail(1<<20)), all.String()[all.Len()-consoleKept:]; got != want {
		t.Errorf("kept are %d bytes, which are not the last %d", len(got), len(want))
	}
	if got := string(c.tail(5)); got != "9999\n" {
		t.Errorf("the last five bytes are %q", got)
	}
	if cap(c.kept) > 4*consoleKept {
		t.Errorf("%d bytes are held", cap(c.kept))
	}
}

func TestAttachedSeesEverythingOnce(t *testing.T) {
	c := newConsole(io.Discard)
	fmt.Fprint(c, "before ")
	var seen bytes.Buffer
	client := NewOutlet(&seen)
	detach := c.attach(client)
	fmt.Fprint(c, "after")
	detach()
	fmt.Fprint(c, "later")
	if err := client.Close(); err != nil || seen.String() != "before after" {
		t.Errorf("got %q, %v", seen.String(), err)
	}
}

func TestSlowAttachedDoesNotHoldTheGuestBack(t *testing.T) {
	c := newConsole(io.Discard)
	_, unread := io.Pipe()
	client := NewOutlet(unread)
	defer c.attach(client)()
	for range 10000 {
		fmt.Fprint(c, "0123456789")
	}
	if got := len(c.tail(consoleKept)); got != consoleKept {
		t.Errorf("%d bytes are kept", got)
	}
	_ = unread.Close()
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}

func TestKeystrokes(t *testing.T) {
	c := newConsole(io.Discard)
	if err := c.typeIn([]byte("x")); err == nil {
		t.Error("keystrokes went nowhere")
	}
	keys, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	defer input.Close()
	c.connect(input)
	if err := c.typeIn([]byte("x")); err != nil {
		t.Error(err)
	}
	// This is more than a pipe holds, and nothing reads it.
	if err := c.typeIn(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a hung guest took everything: %v", err)
	}
}
