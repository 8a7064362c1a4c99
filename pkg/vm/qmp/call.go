package qmp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// call is a command on its way to QEMU and back.
type call struct {
	command string
	message map[string]json.RawMessage // without id
	file    *os.File                   // sent along with the command, and then closed; nil for none
	reply   chan reply                 // takes one without blocking, so that a call can be abandoned
}

// reply is the result of a call.
type reply struct {
	message message
	line    []byte
	err     error // the connection ended before the reply
}

// Execute runs a command and decodes what it returns into result. arguments and result may be nil. If QEMU rejects the
// command, the error is a *CommandError; if the connection ends, it is ErrClosed. If ctx ends first, the command may
// still be carried out; the client stays usable.
func (c *Client) Execute(ctx context.Context, command string, arguments, result any) error {
	return c.executeWith(ctx, command, arguments, nil, result)
}

// executeWith executes a command along with which a file is sent and then closed, unless it is nil.
func (c *Client) executeWith(ctx context.Context, command string, arguments any, file *os.File, result any) error {
	message := map[string]json.RawMessage{"execute": quote(command)}
	if arguments != nil {
		encoded, err := json.Marshal(arguments)
		if err != nil {
			(&call{file: file}).close()
			return fmt.Errorf("encoding the arguments of %s: %w", command, err)
		}
		message["arguments"] = encoded
	}
	r, err := c.send(ctx, &call{command: command, message: message, file: file})
	if err != nil {
		return fmt.Errorf("executing %s: %w", command, err)
	}
	if err := r.refusal(command); err != nil {
		return err
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(r.message.Return, result); err != nil {
		return fmt.Errorf("decoding the reply to %s: %w", command, err)
	}
	return nil
}

// Raw sends a whole command object, such as {"execute":"query-status"}, and returns QEMU's whole reply: an object with
// "return" or "error", and with "id" if the command had one. A rejection is returned both as such a reply and as a
// *CommandError; with any other error there is no reply.
func (c *Client) Raw(ctx context.Context, command json.RawMessage) (json.RawMessage, error) {
	var message map[string]json.RawMessage
	if err := json.Unmarshal(command, &message); err != nil {
		return nil, fmt.Errorf("reading the QMP command: %w", err)
	}
	var name string
	if err := json.Unmarshal(message["execute"], &name); err != nil || name == "" {
		return nil, errors.New(`a QMP command is an object whose "execute" names it`)
	}
	id, hasID := message["id"]
	r, err := c.send(ctx, &call{command: name, message: message})
	if err != nil {
		return nil, fmt.Errorf("executing %s: %w", name, err)
	}
	answer, err := withID(r.line, id, hasID)
	if err != nil {
		return nil, fmt.Errorf("decoding the reply to %s: %w", name, err)
	}
	return answer, r.refusal(name)
}

// withID replaces the client's id in a reply by the caller's.
func withID(line []byte, id json.RawMessage, hasID bool) (json.RawMessage, error) {
	var message map[string]json.RawMessage
	if err := json.Unmarshal(line, &message); err != nil {
		return nil, err
	}
	delete(message, "id")
	if hasID {
		message["id"] = id
	}
	return json.Marshal(message)
}

// refusal converts QEMU's error to a Go error.
func (r reply) refusal(command string) error {
	if r.message.Error == nil {
		return nil
	}
	return &CommandError{Command: command, Class: r.message.Error.Class, Description: r.message.Error.Description}
}

// send passes a call to the writer and waits for its reply.
func (c *Client) send(ctx context.Context, sent *call) (reply, error) {
	for _, value := range sent.message {
		// QEMU responds to bytes that it cannot parse with errors that belong to no command.
		if !utf8.Valid(value) {
			sent.close()
			return reply{}, errors.New("the command is no UTF-8")
		}
	}
	sent.reply = make(chan reply, 1)
	select {
	case c.calls <- sent:
	case <-c.done:
		sent.close()
		return reply{}, c.Err()
	case <-ctx.Done():
		sent.close()
		return reply{}, ctx.Err()
	}
	select {
	case r := <-sent.reply:
		return r, r.err
	case <-ctx.Done():
		return reply{}, ctx.Err()
	}
}

// write sends calls to QEMU. It is a separate goroutine, so that no caller waits for a QEMU that does not read.
func (c *Client) write() {
	for {
		select {
		case sent := <-c.calls:
			if line := c.register(sent); line != nil {
				// An error here means that QEMU has closed the socket; the reader finds out after it has read what QEMU
				// sent last.
				if err := c.transmit(line, sent.file); err != nil && sent.file != nil {
					c.abandon(sent, err)
				}
			}
			sent.close()
		case <-c.done:
			return
		}
	}
}

// close closes the file of a call that has been sent, or will not be.
func (s *call) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}

// abandon ends a call that could not be sent although QEMU did not close the socket.
func (c *Client) abandon(sent *call, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, waiting := range c.pending {
		if waiting == sent {
			delete(c.pending, id)
			sent.reply <- reply{err: err}
		}
	}
}

// transmit sends a line and, along with it, a file that may be nil.
func (c *Client) transmit(line []byte, file *os.File) error {
	if socket, ok := c.conn.(*net.UnixConn); ok && file != nil {
		n, _, err := socket.WriteMsgUnix(line, unix.UnixRights(int(file.Fd())), nil)
		if err != nil {
			return err
		}
		line = line[n:]
	}
	_, err := c.conn.Write(line)
	return err
}

// register gives a call its id and encodes it. It returns nil if the call has failed already.
func (c *Client) register(sent *call) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		sent.reply <- reply{err: c.err}
		return nil
	}
	c.lastID++
	sent.message["id"] = fmt.Append(nil, c.lastID)
	line, err := json.Marshal(sent.message)
	if err != nil {
		sent.reply <- reply{err: err}
		return nil
	}
	c.pending[c.lastID] = sent
	return append(line, '\n')
}

// answer passes a reply to the call that waits for it, if there is one. An abandoned call also receives it.
func (c *Client) answer(m message, line []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting, ok := c.pending[*m.ID]
	if !ok {
		return false
	}
	delete(c.pending, *m.ID)
	waiting.reply <- reply{message: m, line: bytes.Clone(line)}
	return true
}

// quote returns a string as JSON.
func quote(text string) json.RawMessage {
	quoted, _ := json.Marshal(text) // strings can always be encoded
	return quoted
}
