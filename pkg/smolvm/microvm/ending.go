package microvm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// Stop shuts a machine down. It does nothing if the machine does not run. A start in progress is given up, and a creation while
// the artifact is read: the error is NOT_FOUND then.
func (m *Manager) Stop(ctx context.Context, name string) (api.Machine, error) {
	one, release, err := m.interrupt(ctx, name)
	if err != nil {
		return api.Machine{}, err
	}
	defer release()
	if err := m.want(one, false); err != nil {
		return api.Machine{}, err
	}
	m.step("stop: intent")
	if err := m.shutDown(ctx, one); err != nil {
		return api.Machine{}, err
	}
	return m.describe(ctx, one), nil
}

// shutDown ends a machine as gently as possible.
func (m *Manager) shutDown(ctx context.Context, one *machine) error {
	r := one.get()
	if r.Started.IsZero() {
		return nil
	}
	directory := m.store.directory(r.Name)
	if available, err := m.free(directory); available || err != nil {
		return ignoreMissing(err)
	}
	// A process that has just been started does not answer yet.
	told := false
	tell := func() { told = told || m.keepers.Stop(ctx, directory) == nil }
	tell()
	if ok, err := m.awaitFree(ctx, directory, m.patience.shutDown, tell); ok || err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("waiting for the end of machine '%s': %w", r.Name, context.Cause(ctx))
	}
	return m.end(ctx, one)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// end kills the process of a machine and QEMU with it, and makes sure that they have ended. It continues when ctx ends.
func (m *Manager) end(ctx context.Context, one *machine) error {
	return m.endDirectory(ctx, m.store.directory(one.name))
}

func (m *Manager) endDirectory(ctx context.Context, directory string) error {
	ctx = context.WithoutCancel(ctx)
	available, err := m.free(directory)
	if available || err != nil {
		return ignoreMissing(err)
	}
	var killed error
	kill := func() { killed = m.keepers.Kill(ctx, directory) } // again, because a process may only just appear
	kill()
	ok, err := m.awaitFree(ctx, directory, m.patience.kill, kill)
	if err != nil {
		return err
	}
	if !ok {
		return api.Errorf(api.CodeInternal, "the machine of %s is still alive after it was killed; its process may still be running (%v), and its disks are kept", directory, killed)
	}
	return nil
}

// Delete removes a machine and its disks.
func (m *Manager) Delete(ctx context.Context, name string) error {
	one, release, err := m.interrupt(ctx, name)
	if err != nil {
		return err
	}
	defer release()
	if err := m.want(one, false); err != nil {
		return err
	}
	m.step("delete: intent")
	if err := m.end(ctx, one); err != nil {
		return err
	}
	m.step("delete: ended")
	if err := m.store.erase(name); err != nil {
		return err
	}
	m.step("delete: record")
	directory := m.store.directory(name)
	err = m.discard(directory)
	m.forget(one)
	if cleaned := m.keepers.Clean(directory); cleaned != nil {
		m.log.Warn("Cannot remove the sockets and cgroup of a machine", "machine", name, "error", cleaned)
	}
	return err
}
