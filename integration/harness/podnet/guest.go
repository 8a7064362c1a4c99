package podnet

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Guest is a namespace in place of a virtual machine. Its eth0 is the network card at the end of a tap device, as
// QEMU's would be, and has no address yet.
type Guest struct {
	*Namespace
}

// NewGuest connects a card with a MAC to a tap device of the pod. It is disconnected when the test ends.
func (p *Pod) NewGuest(t testing.TB, tap string, mac net.HardwareAddr) *Guest {
	t.Helper()
	g := &Guest{Namespace: newNamespace(t)}
	var card *os.File
	err := g.Do(func() (err error) {
		card, err = newCard(mac)
		return err
	})
	if err != nil {
		t.Fatalf("making a guest: %s", err)
	}
	g.plug(t, p, tap, card)
	return g
}

// plug copies frames between the card and the tap device until the test ends.
func (g *Guest) plug(t testing.TB, p *Pod, tap string, card *os.File) {
	t.Helper()
	var socket *os.File
	err := p.Do(func() (err error) {
		socket, err = openTap(tap)
		return err
	})
	if err != nil {
		card.Close()
		t.Fatalf("plugging a guest into %s: %s", tap, err)
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { pump(socket, card) })
	pumps.Go(func() { pump(card, socket) })
	t.Cleanup(func() {
		card.Close()
		socket.Close()
		pumps.Wait()
	})
}

// pump copies frames, one in each read, until one of the files is closed. A write fails while the device behind it is
// down. The frame is then lost, as on a wire.
func pump(to io.Writer, from io.Reader) {
	frame := make([]byte, 1<<16)
	for {
		n, err := from.Read(frame)
		if err != nil {
			return
		}
		_, _ = to.Write(frame[:n])
	}
}

func newCard(mac net.HardwareAddr) (*os.File, error) {
	card, err := openTap(Interface)
	if err != nil {
		return nil, err
	}
	link, err := netlink.LinkByName(Interface)
	if err == nil {
		err = netlink.LinkSetHardwareAddr(link, mac)
	}
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err == nil {
		err = setUp("lo")
	}
	if err != nil {
		card.Close()
		return nil, fmt.Errorf("setting up %s: %w", Interface, err)
	}
	return card, nil
}

// openTap opens a tap device of the thread's namespace, and creates it if it does not exist.
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("opening the tap device %s: %w", name, err)
	}
	// The file can only be polled from now on, so the runtime must not learn of it earlier.
	return os.NewFile(uintptr(fd), name), nil
}
