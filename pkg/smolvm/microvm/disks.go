package microvm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/instance"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

// Labels of the file systems, as smolvm has them.
const (
	labelStorage = "smolvm"
	labelOverlay = "smolvm-overlay"
)

const gib = 1 << 30

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// make creates the directory of a machine with its disks. The record comes last: a directory without one is removed when
// the Manager is opened.
func (m *Manager) make(ctx context.Context, r Record) (err error) {
	directory := m.store.directory(r.Name)
	if _, err := readRecord(directory); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return api.Errorf(api.CodeConflict, "machine '%s' cannot be created because %s holds another machine's record: %v", r.Name, directory, err)
	}
	if err := m.discard(directory); err != nil {
		return err
	}
	err = os.Mkdir(directory, modeOfState)
	if err == nil {
		err = disk.SyncDirectory(m.store.root)
	}
	if err != nil {
		return storeError(disk.ExplainFull(directory, 0, err))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.discard(directory))
		}
	}()
	m.step("create: directory")
	if err := m.makeDisks(ctx, directory, r.sizes); err != nil {
		return storeError(err)
	}
	m.step("create: disks")
	if err := m.store.save(r); err != nil {
		return storeError(err)
	}
	m.step("create: record")
	return nil
}

func (m *Manager) makeDisks(ctx context.Context, directory string, s sizes) error {
	for _, d := range s.disks() {
		path := filepath.Join(directory, d.name)
		if err := disk.Create(path, d.gb*gib); err != nil {
			return fmt.Errorf("making the disk for %s: %w", d.what, err)
		}
		if err := disk.Format(ctx, path, d.label); err != nil {
			return fmt.Errorf("formatting the disk for %s: %w", d.what, err)
		}
	}
	return nil
}

// fit makes the disks as large as the record says. A crash may have left a disk larger than that. A disk that is missing
// is an error: an empty one in its place would hide that.
func (m *Manager) fit(directory string, s sizes) error {
	for _, d := range s.disks() {
		path := filepath.Join(directory, d.name)
		if _, err := os.Lstat(path); err != nil {
			return fmt.Errorf("the disk for %s is missing: %w; restore it, or delete the machine", d.what, err)
		}
		err := disk.Create(path, d.gb*gib)
		if err != nil && !errors.Is(err, disk.ErrShrink) {
			return fmt.Errorf("growing the disk for %s: %w", d.what, err)
		}
	}
	return nil
}

type diskOf struct {
	name, label, what string
	gb                int64
}

func (s sizes) disks() []diskOf {
	return []diskOf{
		{name: instance.OverlayName, label: labelOverlay, what: "changes to the image", gb: s.OverlayGB},
		{name: instance.StorageName, label: labelStorage, what: "data", gb: s.StorageGB},
	}
}

// discard removes a directory with its disks, once no process has them.
func (m *Manager) discard(directory string) (err error) {
	lock, err := disk.Acquire(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing %s: %w; its disks are kept until that process has ended", directory, err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	return os.RemoveAll(directory)
}

// free reports whether no process has a machine: neither its own one, nor a QEMU that outlived that. It takes the lock to
// find out, so that only one caller at a time may ask: the one that holds the machine.
func (m *Manager) free(directory string) (bool, error) {
	if alive, err := m.keepers.Alive(directory); alive || err != nil {
		return false, err
	}
	lock, err := disk.Acquire(directory)
	if errors.Is(err, disk.ErrLocked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, lock.Close()
}

// awaitFree waits until no process has a machine, and reports whether that is so. try is called each time that one has
// it; nil for nothing.
func (m *Manager) awaitFree(ctx context.Context, directory string, within time.Duration, try func()) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		if ok, err := m.free(directory); ok || err != nil {
			return ok, err
		}
		if try != nil {
			try()
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-look.C:
		}
	}
}
