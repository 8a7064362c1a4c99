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
// disks, stay below 1 MiB.
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

// time is the zero time when QEMU's clock failed, which it says by negative numbers.
func (t timestamp) time() time.Time {
	if t.Seconds < 0 || t.Microseconds < 0 {
		return time.Time{}
	}
	return time.Unix(t.Seconds, 0).Add(time.Duration(t.Microseconds) * time.Microsecond)
}

// parse takes a line from QEMU apart.
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
		// QEMU answers so what it cannot parse, and with more than one line at that: whose reply it is nobody knows.
		return message{}, notQMP(line, errors.New("a reply without id"))
	}
	return m, nil
}

// newScanner splits what comes from QEMU into lines; empty ones are left out. What is left at the end without being a
// line makes it end with io.ErrUnexpectedEOF.
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
