package keeper

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTerminationMessage(t *testing.T) {
	for name, test := range map[string]struct {
		message string
		console []byte
		want    string
	}{
		"without a console":            {"x", nil, "DiskFull: x\n"},
		"with a console":               {"x", []byte("a\r\nb\r\n"), "DiskFull: x\n\nconsole:\na\nb\n"},
		"with a terminal's characters": {"x", []byte("\x1b[?2004hroot#\a"), "DiskFull: x\n\nconsole:\nroot#"},
		"with what is no text":         {"x", []byte{'a', 0xff, 0xfe, 'b'}, "DiskFull: x\n\nconsole:\na\uFFFDb"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := terminationMessage(End{Reason: ReasonDiskFull, Message: test.message}, test.console); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestTerminationMessageHasRoomForBoth(t *testing.T) {
	for _, message := range []string{"x", strings.Repeat("ü", 5000)} {
		for _, console := range [][]byte{nil, bytes.Repeat([]byte("ö"), 1<<15), bytes.Repeat([]byte{0xff, 'x'}, 1<<15)} {
			got := terminationMessage(End{Reason: ReasonDiskFull, Message: message}, console)
			if len(got) > terminationSize || !utf8.ValidString(got) || !strings.HasPrefix(got, "DiskFull: ") {
				t.Errorf("the message has %d bytes", len(got))
			}
			if console != nil && !strings.Contains(got, "\nconsole:\n") {
				t.Error("there is no room for the console")
			}
		}
	}
}
