package instance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
)

// claimName is the file on which the process of a machine holds a lock as long as it lives.
const claimName = "keeper.lock"

// ErrClaimed says that another process has the machine.
var ErrClaimed = errors.New("another process runs this machine")

// wholeFile is a lock of fcntl(2). The kernel names its holder to others, so that the process of a machine is found
// without trusting what it wrote.
func wholeFile() *unix.Flock_t { return &unix.Flock_t{Type: unix.F_WRLCK} }

// claim makes this process the one of a machine. The lock lasts as long as the process; the file must not be opened
// again in it, because closing it would give up the lock.
func claim(directory string) (*os.File, error) {
	file, err := ownfile.Open(filepath.Join(directory, claimName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.FcntlFlock(file.Fd(), unix.F_SETLK, wholeFile())
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = ErrClaimed
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("claiming %s: %w", directory, err), file.Close())
	}
	return file, nil
}

// look returns the lock of a machine's process; its type is F_UNLCK if there is none. It takes no lock, so that others who
// look at the same time see the same.
func look(directory string) (*unix.Flock_t, error) {
	file, err := ownfile.Open(filepath.Join(directory, claimName), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return &unix.Flock_t{Type: unix.F_UNLCK}, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	lock := wholeFile()
	if err := unix.FcntlFlock(file.Fd(), unix.F_GETLK, lock); err != nil {
		return nil, fmt.Errorf("finding the process of %s: %w", directory, err)
	}
	return lock, nil
}

// Claimed reports whether a process has the machine of a directory.
func Claimed(directory string) (bool, error) {
	lock, err := look(directory)
	return err == nil && lock.Type != unix.F_UNLCK, err
}

// holder returns the number of the process of a machine; 0 if it has none.
func holder(directory string) (int, error) {
	lock, err := look(directory)
	if err != nil || lock.Type == unix.F_UNLCK {
		return 0, err
	}
	if lock.Pid <= 1 {
		return 0, fmt.Errorf("the process of %s is not visible here: the server has to share its process namespace", directory)
	}
	return int(lock.Pid), nil
}

// Kill kills the process of a machine, and QEMU with it. It does nothing if there is none. The guest loses what it has
// not written.
func Kill(_ context.Context, directory string) error {
	pid, err := holder(directory)
	if pid == 0 || err != nil {
		return err
	}
	// The number may belong to another process by now, but not the descriptor after the second look.
	process, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(process) }()
	if again, err := holder(directory); again != pid || err != nil {
		return err
	}
	if err := unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("killing process %d: %w", pid, err)
	}
	return nil
}
