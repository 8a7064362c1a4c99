package usernet

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Card returns the two ends of a connection for the guest's card: ours is for Serve, and QEMU inherits theirs
// (qemu.Network.SocketDescriptor).
func Card() (ours net.Conn, theirs *os.File, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	file := os.NewFile(uintptr(ends[0]), "card")
	theirs = os.NewFile(uintptr(ends[1]), "card")
	ours, err = net.FileConn(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}
