package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdfiles"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/jail"
	"github.com/kvm-operator/kvm-operator/pkg/vm/sharemap"
)

// qemuUser is the user that QEMU runs as, 0 if it is the runner's own: only root can start a program as another user.
func (r *Runner) qemuUser() int {
	if os.Geteuid() != 0 {
		return 0
	}
	return r.settings.QEMUUser
}

// readable checks that QEMU's user may read the files. Files of the cache are created that way; a file of the host is
// never changed.
func (r *Runner) readable(paths ...string) error {
	user := r.qemuUser()
	if user == 0 {
		return nil
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o004 == 0 {
			return fmt.Errorf("QEMU runs as user %d and cannot read %s: let everybody read it (chmod o+r)", user, path)
		}
	}
	return nil
}

// jail returns the sandbox of every QEMU.
func (r *Runner) jail() jail.Jail {
	return jail.Jail{
		User: r.qemuUser(), Directory: r.settings.qemuRoot(), Say: func(text string) { r.log.Warn(text) },
		// A machine's packets arrive by file descriptor; QEMU's own network needs that of the pod.
		Offline: r.settings.Network != NetworkUser,
	}
}

// capabilitiesOfFiles are those that QEMU needs to serve files of any owner.
var capabilitiesOfFiles = []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID}

// jailOf returns the sandbox of the machine's QEMU, which sees its kernel, boot data and shares.
func (r *Runner) jailOf(p *prepared) jail.Jail {
	j := r.jail()
	j.Paths = []jail.Path{{Name: p.image.Kernel}, {Name: p.image.Initrd}, {Name: r.settings.ignition()}}
	for _, share := range r.shares(p) {
		j.Paths, j.Processes = append(j.Paths, jail.Path{Name: share.Path, Writable: true}), true
	}
	if p.rooted && j.User != 0 {
		j.User, j.Capabilities = 0, capabilitiesOfFiles
	}
	return j
}

// shares returns the directories that the guest shares.
func (r *Runner) shares(p *prepared) []Share {
	shares := r.settings.Shares
	if r.settings.Etcd != "" && p.etcd.Disk == "" {
		shares = append([]Share{{Tag: etcdTag, Path: r.settings.Etcd}}, shares...)
	}
	return shares
}

// prepareShares makes QEMU's user the owner of the files of shares. Earlier machines, whose QEMU ran as root, and the
// Jobs of restores left files of any owner. On a file system without extended attributes the files are not changed, and
// QEMU stays root, but only with the capabilities for files.
func (r *Runner) prepareShares(_ context.Context, p *prepared) error {
	user := r.qemuUser()
	p.mapped = map[string]bool{}
	for _, share := range r.shares(p) {
		if user == 0 {
			continue
		}
		err := sharemap.Share{
			Directory: share.Path, User: user, Except: []string{disk.LockName, etcdfiles.Mark}, Whole: share.Tag == etcdTag,
		}.Convert()
		switch {
		case errors.Is(err, sharemap.ErrUnsupported):
			r.log.Warn("QEMU runs as root, because a share has no extended attributes", "share", share.Path)
			p.rooted = true
		case err != nil:
			return because(diskReason(err), err)
		default:
			p.mapped[share.Tag] = true
		}
	}
	r.board.set(func(s *Status) { s.Rooted = p.rooted })
	return nil
}

// openSockets creates the sockets of monitor and agent. QEMU inherits them, so that it needs no directory to create
// sockets in.
func (r *Runner) openSockets(p *prepared) error {
	for _, socket := range []struct {
		path   string
		number *int
	}{{r.settings.monitor(), &p.monitor}, {r.settings.agent(), &p.agent}} {
		file, err := listen(socket.path)
		if err != nil {
			return because(ReasonInternal, fmt.Errorf("making a socket for QEMU: %w", err))
		}
		*socket.number = p.give(file)
	}
	return nil
}

// listen creates a listening socket at a path, which only the runner's user can open.
func listen(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	file, err := listener.File()
	if err = errors.Join(err, os.Chmod(path, 0o600), listener.Close()); err != nil && file != nil {
		err = errors.Join(err, file.Close())
	}
	return file, err
}
