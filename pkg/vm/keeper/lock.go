package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

// Lock locks directories, images and devices that at most one machine may use. QEMU inherits the locks, so that they
// stay as long as QEMU lives, even if the keeper has ended.
func (l *Launch) Lock(ctx context.Context, paths ...string) error {
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return Because(ReasonDiskFailed, err)
		}
		lock, err := l.acquire(ctx, path)
		if err != nil {
			return BecauseOfDisk(err)
		}
		l.inherit(lock.File())
		l.OnClose(lock.Close)
	}
	return nil
}

// Inherit keeps a lock that the caller got from its own parent, and lets QEMU inherit it. The launch closes the file.
func (l *Launch) Inherit(lock *os.File) {
	l.inherit(lock)
	l.OnClose(lock.Close)
}

// acquire waits for a lock, because the pod that this one replaces may still be shutting its machine down.
func (l *Launch) acquire(ctx context.Context, path string) (*disk.Lock, error) {
	timeout := l.keeper.settings.Timeouts.Lock
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for told := false; ; told = true {
		lock, err := disk.Acquire(path)
		if !errors.Is(err, disk.ErrLocked) {
			return lock, err
		}
		if !told {
			l.Tell(fmt.Sprintf("waiting for %s at most: %v", timeout, err))
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Second):
		}
	}
}
