package qmp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"time"
)

// maxLine bounds one message from QEMU in bytes. The longest real ones, query-qmp-schema and query-block with many
// disks, are below 1 MiB.
const maxLine = 16 << 20

// message is one line from QEMU: the greeting, an event or a reply (QEMU: docs/interop/qmp-spec.txt).
type message struct {
	Greeting json.RawMessage `json:"QMP"`

	Event     string          `json:"event"`
	Data      json.RawMessage `json:"data"`
	Timestamp timestamp       `json:"timestamp"`

	ID     *uint64         `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class       string `json:"class"`
		Description string `json:"desc"`
	} `json:"error"`
}

type timestamp struct {
	Seconds      int64 `json:"seconds"`
	Microseconds int64 `json:"microseconds"`
}

// time returns the zero time if QEMU's clock failed, which it reports by negative numbers.
func (t timestamp) time() time.Time {
	if t.Seconds < 0 || t.Microseconds < 0 {
		return time.Time{}
	}
	return time.Unix(t.Seconds, 0).Add(time.Duration(t.Microseconds) * time.Microsecond)
}

// parse parses a line from QEMU.
func parse(line []byte) (message, error) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, notQMP(line, err)
	}
	isReply := m.Return != nil || m.Error != nil
	switch {
	case m.Greeting == nil && m.Event == "" && !isReply:
		return message{}, notQMP(line, errors.New("it is no greeting, event or reply"))
	case isReply && m.ID == nil:
		// QEMU responds in this way to data that it cannot parse, and possibly with more than one line: it is unknown
		// which command the reply is for.
		return message{}, notQMP(line, errors.New("a reply without id"))
	}
	return m, nil
}

// newScanner splits what comes from QEMU into lines and skips empty ones. If the data ends without a line feed, it
// fails with io.ErrUnexpectedEOF.
func newScanner(from io.Reader) *bufio.Scanner {
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, maxLine)
	scanner.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		blank := len(data) - len(bytes.TrimLeft(data, " \t\r\n"))
		length := bytes.IndexByte(data[blank:], '\n')
		switch {
		case length >= 0:
			return blank + length + 1, bytes.TrimSpace(data[blank : blank+length]), nil
		case atEOF && blank < len(data):
			return 0, nil, io.ErrUnexpectedEOF
		}
		return blank, nil, nil
	})
	return scanner
}
