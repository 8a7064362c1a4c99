package keeper

import (
	"io"
	"sync"
	"time"
)

const (
	// consoleKept is how much of the console is kept for diagnosis, in bytes.
	consoleKept = 64 << 10
	// typingTimeout is how long the guest may take to read what is typed.
	typingTimeout = 5 * time.Second
)

// keyboard accepts keystrokes for the guest: it is the other end of QEMU's standard input.
type keyboard interface {
	io.Writer
	SetWriteDeadline(time.Time) error
}

// console is the guest's serial console. Its output is logged, kept, and copied to all attached clients.
type console struct {
	log io.Writer

	mu       sync.Mutex
	kept     []byte
	attached map[*Outlet]struct{}

	typing sync.Mutex
	input  keyboard
}

func newConsole(log io.Writer) *console {
	return &console{log: log, attached: map[*Outlet]struct{}{}}
}

// Write receives what the guest printed. It never waits for an attached client.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.kept = append(c.kept, p...)
	// The buffer may grow by half before its content is moved, so that each byte is moved only once or twice.
	if len(c.kept) > consoleKept*3/2 {
		c.kept = append(c.kept[:0], c.kept[len(c.kept)-consoleKept:]...)
	}
	for client := range c.attached {
		_, _ = client.Write(p)
	}
	c.mu.Unlock()
	return c.log.Write(p)
}

// tail returns the last n bytes that the guest printed, or fewer if there are not that many.
func (c *console) tail(n int) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]byte(nil), c.kept[max(0, len(c.kept)-min(n, consoleKept)):]...)
}

// attach gives a client what is kept and then all further output, without a gap, until detach is called.
func (c *console) attach(client *Outlet) (detach func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = client.Write(c.kept[max(0, len(c.kept)-consoleKept):])
	c.attached[client] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.attached, client)
	}
}

// typeIn sends keystrokes to the guest. It fails before QEMU runs, and if a paused guest has too many unread
// keystrokes.
func (c *console) typeIn(p []byte) error {
	c.typing.Lock()
	defer c.typing.Unlock()
	if c.input == nil {
		return io.ErrClosedPipe
	}
	if err := c.input.SetWriteDeadline(time.Now().Add(typingTimeout)); err != nil {
		return err
	}
	_, err := c.input.Write(p)
	return err
}

func (c *console) connect(input keyboard) {
	c.typing.Lock()
	defer c.typing.Unlock()
	c.input = input
}
