package qmp

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// prelude brings a client to the point where commands may be sent; its own first one has the id 1.
const prelude = `{"QMP": {"version": {}, "capabilities": []}}
{"return": {}, "id": 1}
`

// FuzzReader: for any data from the socket, the client neither panics nor hangs nor leaks goroutines, and every call
// ends. With inTurn every line is held back until a command was sent, so that it may be the reply to that command.
func FuzzReader(f *testing.F) {
	for _, inTurn := range []bool{false, true} {
		for _, stream := range []string{
			"", "\n", "{}", "[]\n", "null\n", "garbage\r\n", prelude, "\r\n\r\n" + prelude + prelude, "\xff\xfe\n", prelude + `{"return":`,
			`{"QMP": null}` + "\n", `{"QMP": 1, "event": "x", "return": 1, "id": 1}` + "\n",
			prelude + `{"error": {"class": "GenericError", "desc": "JSON parse error"}}` + "\n",
			prelude + `{"return": {}, "id": -1}` + "\n", prelude + `{"return": {}, "id": "x"}` + "\n",
			prelude + `{"return": {}, "id": 18446744073709551616}` + "\n",
			prelude + `{"id": 2, "error": {"class": "DeviceNotFound", "desc": "no"}}` + "\n",
			prelude + `{"event": "STOP", "timestamp": {"seconds": -9223372036854775808, "microseconds": 9223372036854775807}}` + "\n",
			prelude + `{"event": "ACPI_DEVICE_OST", "data": 1}` + "\n" + strings.Repeat("[", 20000) + "\n",
			prelude + `{"return": [{"props": {"core-id": 1}, "vcpus-count": 1, "type": "c"}, {"vcpus-count": 1, "qom-path": "/machine/unattached/device[0]"}], "id": 2}` +
				"\n" + `{"return": [], "id": 3}` + "\n" + `{"return": {}, "id": 4}` + "\n" + `{"return": [], "id": 5}` + "\n",
			prelude + `{"return": [{"vcpus-count": -1, "qom-path": "/machine/peripheral/a"}, {"vcpus-count": 4, "qom-path": "/machine/peripheral/b"}], "id": 2}` +
				"\n" + `{"return": {"enabled": true}, "id": 3}` + "\n" + `{"return": {}, "id": 4}` + "\n" +
				`{"event": "ACPI_DEVICE_OST", "data": {"info": {"device": "b", "source": 3, "status": 1}}}` + "\n",
			prelude + `{"return": null, "id": 2}` + "\n" + `{"return": {"base-memory": -1, "plugged-memory": 9223372036854775807}, "id": 3}` + "\n" +
				`{"return": {}, "id": 4}` + "\n" + `{"return": {"actual": -9223372036854775808}, "id": 5}` + "\n",
			prelude + `{"return": 1, "id": 2}` + "\n" + `{"return": [], "id": 3}` + "\n" +
				`{"return": [{"qdev": "cd0", "locked": true}], "id": 4}` + "\n" + `{"return": {}, "id": 5}` + "\n",
		} {
			f.Add([]byte(stream), inTurn)
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte, inTurn bool) {
		ours, theirs := net.Pipe()
		go speak(theirs, stream, inTurn)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			converse(t, ours)
		}()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatalf("a call hangs:\n%s", stacks())
		}
		for deadline := time.Now().Add(10 * time.Second); strings.Contains(stacks(), "qmp.(*"); runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("a goroutine is left:\n%s", stacks())
			}
		}
	})
}

// speak sends the stream, at once or each line after a command or a moment of silence, and disconnects.
func speak(conn net.Conn, stream []byte, inTurn bool) {
	defer conn.Close()
	lines := [][]byte{stream}
	if inTurn {
		lines = bytes.SplitAfter(stream, []byte("\n"))
	}
	commands := bufio.NewReader(conn)
	for i, line := range lines {
		if i > 0 && !bytes.HasPrefix(line, []byte(`{"event"`)) {
			_ = conn.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
			_, _ = commands.ReadBytes('\n')
		}
		if _, err := conn.Write(line); err != nil {
			return
		}
	}
}

// converse calls everything that decodes data from QEMU.
func converse(t *testing.T, conn net.Conn) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c, err := greet(ctx, conn, WithPatience(Patience{Unplug: time.Millisecond, Balloon: time.Millisecond, Tray: time.Millisecond}))
	if err != nil {
		return
	}
	s := c.Subscribe()
	defer s.Close()
	_ = c.SetCPUs(ctx, 2)
	_, _ = c.SetMemory(ctx, 1<<28)
	_ = c.ChangeCD(ctx, "cd0", "x")
	_ = c.EjectCD(ctx, "cd0")
	_, _ = c.Raw(ctx, []byte(`{"execute": "x", "id": 1}`))
	if _, err = c.Version(ctx); ctx.Err() != nil {
		t.Errorf("a call does not end with the connection: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func stacks() string {
	all := make([]byte, 1<<20)
	return string(all[:runtime.Stack(all, true)])
}
