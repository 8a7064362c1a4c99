package guestnet

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// OpenTap opens the guest's end of the tap device, for a QEMU that may not do so itself. The calling thread must be in
// the pod's network namespace. Close the file once QEMU has inherited it, because the device has a carrier while the
// guest's end is open.
func (n *Network) OpenTap() (*os.File, error) {
	tap, _, err := OpenTap(n.Tap)
	return tap, err
}

// OpenTap opens the guest's end of a tap device with one queue and virtio's headers, and returns the device's name. A
// device that does not exist is created, and goes when the last process has closed it; in its name, %d stands for a number
// that the kernel chooses. It needs CAP_NET_ADMIN and /dev/net/tun.
func OpenTap(name string) (*os.File, string, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, "", fmt.Errorf("opening the tap device: %w", &os.PathError{Op: "open", Path: "/dev/net/tun", Err: err})
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, "", errors.Join(err, unix.Close(fd))
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, "", errors.Join(fmt.Errorf("opening the tap device %s: %w", name, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), request.Name()), request.Name(), nil
}
