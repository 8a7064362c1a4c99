// Package guestagent talks to the QEMU guest agent (https://www.qemu.org/docs/master/interop/qemu-ga-ref.html). What the
// agent answers comes from the guest, which may be hostile: it is bounded, and proves nothing.
package guestagent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
	"unicode"
)

const (
	// maxAnswer bounds an answer in bytes, and maxText a text in it.
	maxAnswer = 1 << 16
	maxText   = 128
	// delimiter begins the answer to guest-sync-delimited.
	delimiter = 0xff
)

// Client is a connection to a guest agent. It is for one goroutine at a time.
type Client struct {
	connection net.Conn
	answers    *bufio.Reader
}

// Dial connects to the Unix socket of an agent's port. It returns once the agent has answered; ctx bounds that.
func Dial(ctx context.Context, path string) (*Client, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	c := &Client{connection: connection, answers: bufio.NewReaderSize(connection, maxAnswer)}
	if err := c.sync(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the guest agent does not answer: %w", err), connection.Close())
	}
	return c, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.connection.Close() }

// sync discards what an earlier client has left: a part of a request in the agent, and answers.
func (c *Client) sync(ctx context.Context) error {
	id := time.Now().UnixMicro() // less than 2^53, which all parsers of JSON keep
	if _, err := c.connection.Write([]byte{delimiter}); err != nil {
		return err
	}
	defer c.until(ctx)()
	if err := c.send("guest-sync-delimited", map[string]any{"id": id}); err != nil {
		return err
	}
	for {
		if err := c.skipTo(delimiter); err != nil {
			return err
		}
		var answered int64
		if err := c.receive(&answered); err == nil && answered == id {
			return nil
		} else if err != nil && !errors.As(err, new(*Refusal)) && !errors.Is(err, errNotJSON) {
			return err
		}
	}
}

// skipTo reads up to and including a byte.
func (c *Client) skipTo(end byte) error {
	for {
		b, err := c.answers.ReadByte()
		if err != nil || b == end {
			return err
		}
	}
}

// until makes reads and writes end with the context, until the returned function is called.
func (c *Client) until(ctx context.Context) (done func()) {
	deadline, _ := ctx.Deadline() // the zero time means none
	_ = c.connection.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = c.connection.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

func (c *Client) send(command string, arguments any) error {
	text, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, arguments})
	if err != nil {
		return err
	}
	_, err = c.connection.Write(append(text, '\n'))
	return err
}

var errNotJSON = errors.New("the guest agent answers something that is not JSON")

// Refusal is an error that the agent answers.
type Refusal struct{ Description string }

// Error returns what the agent says, shortened.
func (r *Refusal) Error() string { return "the guest agent refuses: " + printable(r.Description) }

func (c *Client) receive(result any) error {
	line, err := c.answers.ReadSlice('\n')
	if err != nil {
		return err // also if the answer is too long
	}
	var answer struct {
		Return json.RawMessage
		Error  *struct{ Desc string }
	}
	if json.Unmarshal(bytes.TrimLeft(line, string([]byte{delimiter})), &answer) != nil {
		return errNotJSON
	}
	if answer.Error != nil {
		return &Refusal{answer.Error.Desc}
	}
	if result == nil {
		return nil
	}
	if json.Unmarshal(answer.Return, result) != nil {
		return errNotJSON
	}
	return nil
}

// call executes a command. After an error that is no Refusal the connection is unusable.
func (c *Client) call(ctx context.Context, command string, arguments, result any) error {
	defer c.until(ctx)()
	if err := c.send(command, arguments); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	if err := c.receive(result); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}

// OSInfo is what an agent says about its operating system, in its own words.
type OSInfo struct {
	ID            string `json:"id,omitempty"`
	Name          string `json:"name,omitempty"`
	PrettyName    string `json:"pretty-name,omitempty"`
	Version       string `json:"version,omitempty"`
	VersionID     string `json:"version-id,omitempty"`
	KernelRelease string `json:"kernel-release,omitempty"`
	KernelVersion string `json:"kernel-version,omitempty"`
	Machine       string `json:"machine,omitempty"`
	Variant       string `json:"variant,omitempty"`
	VariantID     string `json:"variant-id,omitempty"`
}

// Printable returns the same without control characters, each text shortened.
func (o OSInfo) Printable() OSInfo {
	for _, text := range []*string{&o.ID, &o.Name, &o.PrettyName, &o.Version, &o.VersionID, &o.KernelRelease, &o.KernelVersion, &o.Machine, &o.Variant, &o.VariantID} {
		*text = printable(*text)
	}
	return o
}

// OSInfo asks for the operating system.
func (c *Client) OSInfo(ctx context.Context) (OSInfo, error) {
	var info OSInfo
	err := c.call(ctx, "guest-get-osinfo", nil, &info)
	return info.Printable(), err
}

// cpu is a CPU of the guest.
type cpu struct {
	ID     int64 `json:"logical-id"`
	Online bool  `json:"online"`
}

// SwitchOn switches on the CPUs that are off. It returns how many the guest uses then.
func (c *Client) SwitchOn(ctx context.Context) (online int, err error) {
	var cpus, off []cpu
	if err := c.call(ctx, "guest-get-vcpus", nil, &cpus); err != nil {
		return 0, err
	}
	for _, one := range cpus {
		if !one.Online {
			off = append(off, cpu{ID: one.ID, Online: true})
		}
	}
	online = len(cpus) - len(off)
	if len(off) == 0 {
		return online, nil
	}
	var done int
	err = c.call(ctx, "guest-set-vcpus", map[string]any{"vcpus": off}, &done)
	return online + min(max(done, 0), len(off)), err
}

// Shutdown asks the guest to shut down. An agent that does so answers nothing.
func (c *Client) Shutdown(ctx context.Context) error {
	defer c.until(ctx)()
	return c.send("guest-shutdown", map[string]any{"mode": "powerdown"})
}

// printable returns the beginning of a text without control characters.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	for len(text) > maxText {
		runes := []rune(text)
		text = string(runes[:len(runes)-1-(len(text)-maxText)/4])
	}
	return text
}
