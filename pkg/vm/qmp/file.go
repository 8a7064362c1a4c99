package qmp

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// PassFile gives QEMU a duplicate of an open file, which QEMU may then open under the name that is returned, however
// often. release ends that; QEMU closes the file once it no longer uses it (QEMU: qapi/misc.json, add-fd).
func (c *Client) PassFile(ctx context.Context, file *os.File) (name string, release func(context.Context) error, err error) {
	var set struct {
		ID int `json:"fdset-id"`
	}
	// The command may still be on its way when the caller closes the file.
	number, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = c.executeWith(ctx, "add-fd", arguments{"opaque": file.Name()}, os.NewFile(uintptr(number), file.Name()), &set)
	}
	if err != nil {
		return "", nil, fmt.Errorf("passing %s to QEMU: %w", file.Name(), err)
	}
	release = func(ctx context.Context) error {
		return c.Execute(ctx, "remove-fd", arguments{"fdset-id": set.ID}, nil)
	}
	return fmt.Sprintf("/dev/fdset/%d", set.ID), release, nil
}
