package podnet

import (
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Capture records the Ethernet frames of an interface.
type Capture struct {
	file   *os.File
	done   chan struct{}
	mutex  sync.Mutex
	frames [][]byte
}

// Capture records what an interface of the namespace sends and receives from now until the end of the test.
func (n *Namespace) Capture(t testing.TB, name string) *Capture {
	t.Helper()
	return n.capture(t, name, 0)
}

// CaptureIncoming records what an interface of the namespace receives, but not what it sends. On a pod's HostInterface,
// these are the frames that leave the pod.
func (n *Namespace) CaptureIncoming(t testing.TB, name string) *Capture {
	t.Helper()
	return n.capture(t, name, 1)
}

func (n *Namespace) capture(t testing.TB, name string, ignoreOutgoing int) *Capture {
	t.Helper()
	c := &Capture{done: make(chan struct{})}
	err := n.Do(func() (err error) {
		c.file, err = openPacketSocket(name, ignoreOutgoing)
		return err
	})
	if err != nil {
		t.Fatalf("capturing the frames of %s: %s", name, err)
	}
	go c.record()
	t.Cleanup(func() {
		c.file.Close()
		<-c.done
	})
	return c
}

func (c *Capture) record() {
	defer close(c.done)
	buffer := make([]byte, 1<<16)
	for {
		n, err := c.file.Read(buffer)
		if err != nil {
			return
		}
		c.mutex.Lock()
		c.frames = append(c.frames, slices.Clone(buffer[:n]))
		c.mutex.Unlock()
	}
}

// Frames returns the frames so far, in order. To be sure that a frame was not sent, wait for one that was sent after
// it.
func (c *Capture) Frames() [][]byte {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return slices.Clone(c.frames)
}

func openPacketSocket(name string, ignoreOutgoing int) (*os.File, error) {
	interfaceOf, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	// Without a protocol, the socket receives nothing before it is bound to the interface.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	everything := uint16(unix.ETH_P_ALL)
	address := &unix.SockaddrLinklayer{Protocol: everything<<8 | everything>>8, Ifindex: interfaceOf.Index}
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, ignoreOutgoing)
	if err == nil {
		err = unix.Bind(fd, address)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("binding a packet socket to %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
