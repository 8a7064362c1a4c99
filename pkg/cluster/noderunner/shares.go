package noderunner

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdfiles"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/jail"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/sharemap"
)

// capabilitiesOfFiles are those that QEMU needs to serve files of any owner.
var capabilitiesOfFiles = []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID}

// shares returns the directories that the guest shares.
func (s Settings) shares(etcd etcdfiles.Store) []Share {
	if s.Etcd == "" || etcd.Disk != "" {
		return s.Shares
	}
	return append([]Share{{Tag: etcdTag, Path: s.Etcd}}, s.Shares...)
}

// showShares lets QEMU see the directories.
func (p *preparation) showShares() {
	for _, share := range p.settings.shares(p.etcd) {
		p.Jail.Paths, p.Jail.Processes = append(p.Jail.Paths, jail.Path{Name: share.Path, Writable: true}), true
	}
}

// prepareShares makes QEMU's user the owner of the files of shares. Earlier machines, whose QEMU ran as root, and the
// Jobs of restores left files of any owner. On a file system without extended attributes the files are not changed, and
// QEMU stays root, but only with the capabilities for files.
func (p *preparation) prepareShares(context.Context) error {
	user, rooted := p.Jail.User, false
	if user == 0 {
		return nil
	}
	for _, share := range p.settings.shares(p.etcd) {
		err := sharemap.Share{
			Directory: share.Path, User: user, Except: []string{disk.LockName, etcdfiles.Mark}, Whole: share.Tag == etcdTag,
		}.Convert()
		switch {
		case errors.Is(err, sharemap.ErrUnsupported):
			p.log.Warn("QEMU runs as root, because a share has no extended attributes", "share", share.Path)
			rooted = true
		case err != nil:
			return keeper.BecauseOfDisk(err)
		default:
			p.mapped[share.Tag] = true
		}
	}
	if rooted {
		p.Jail.User, p.Jail.Capabilities = 0, capabilitiesOfFiles
	}
	return nil
}
