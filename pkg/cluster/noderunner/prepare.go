package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdfiles"
	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/osimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

// prepared is everything that a machine needs before QEMU is started. It is filled step by step; Close releases what
// there is.
type prepared struct {
	// halves are the parts of the boot data, and bootData is their merge with what only the runner knows.
	halves   [][]byte
	bootData []byte
	image    osimage.Local
	choice   qemu.Choice
	etcd     etcdfiles.Store
	// inherited are the files that QEMU inherits: the locks, and its disks.
	inherited []*os.File
	// descriptors are the file descriptors of disks in QEMU's process, by serial number.
	descriptors map[string]int
	// handed are those of the inherited files that the runner itself does not keep open.
	handed []*os.File
	// monitor and agent are their file descriptors in QEMU's process; 0 for none.
	monitor, agent int
	// mapped says of shares, by tag, that the guest's owners and modes are in extended attributes. rooted says that
	// this is impossible for one of them, so that QEMU has to be root.
	mapped map[string]bool
	rooted bool
	// card is the guest's network card, and reach is how the runner reaches the guest through it.
	card    qemu.Network
	reach   reach
	closers []func() error
}

// Close releases everything, in reverse order.
func (p *prepared) Close() error {
	errs := []error{p.closeHanded()}
	for _, closer := range slices.Backward(p.closers) {
		errs = append(errs, closer())
	}
	p.closers = nil
	return errors.Join(errs...)
}

// firstDescriptor is the first file descriptor that a process inherits after standard input, output and error.
const firstDescriptor = 3

// inherit lets QEMU inherit a file, and returns the file descriptor that it has there.
func (p *prepared) inherit(file *os.File) int {
	p.inherited = append(p.inherited, file)
	return firstDescriptor + len(p.inherited) - 1
}

// handOver lets QEMU inherit a disk.
func (p *prepared) handOver(serial string, file *os.File) {
	if p.descriptors == nil {
		p.descriptors = map[string]int{}
	}
	p.descriptors[serial] = p.give(file)
}

// give lets QEMU inherit a file that the runner itself does not need.
func (p *prepared) give(file *os.File) int {
	p.handed = append(p.handed, file)
	return p.inherit(file)
}

// closeHanded closes what QEMU has inherited: a socket that the runner kept open would appear to be served after QEMU's
// end.
func (p *prepared) closeHanded() error {
	var errs []error
	for _, file := range p.handed {
		errs = append(errs, file.Close())
	}
	p.handed = nil
	return errors.Join(errs...)
}

func (p *prepared) onClose(closer func() error) { p.closers = append(p.closers, closer) }

// prepare does everything that can fail before something is started, the cheap steps first: a mistake in boot data is
// reported before an image is downloaded. The network is taken last because downloads need it.
func (r *Runner) prepare(ctx context.Context) (*prepared, error) {
	p := &prepared{}
	for _, step := range []struct {
		what string
		do   func(context.Context, *prepared) error
	}{
		{"reading boot data", r.readBootData},
		{"locking disks", r.lockDisks},
		{"looking at etcd's data", r.findEtcd},
		{"getting back the pod's network", r.repairNetwork},
		{"getting the image " + r.settings.Image.Name, r.getImage},
		{"choosing the accelerator", r.chooseAccelerator},
		{"making disks", r.makeDisks},
		{"preparing shares", r.prepareShares},
		{"opening the image", r.openImage},
		{"taking the pod's network", r.takeNetwork},
	} {
		r.enter(StatePreparing, step.what)
		if err := step.do(ctx, p); err != nil {
			return p, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return p, nil
}

func (r *Runner) readBootData(_ context.Context, p *prepared) error {
	for _, path := range r.settings.BootData {
		half, err := readHalf(path)
		if err != nil {
			return err
		}
		p.halves = append(p.halves, half)
	}
	_, err := bootdata.Merge(guestOwn(r.settings, p.etcd), p.halves...)
	return because(ReasonBootDataInvalid, err)
}

// findEtcd inspects the volume once it is locked, because before that the machine that this one replaces may still use
// it. Only then is it known what the guest has to be told.
func (r *Runner) findEtcd(_ context.Context, p *prepared) error {
	var err error
	if p.etcd, err = etcdfiles.Find(r.settings.Etcd, r.settings.EtcdDisk > 0); err != nil {
		return because(ReasonDiskFailed, err)
	}
	p.bootData, err = bootdata.Merge(guestOwn(r.settings, p.etcd), p.halves...)
	p.halves = nil
	return because(ReasonBootDataInvalid, err)
}

// maxBootData is larger than any Kubernetes object, in bytes.
const maxBootData = 2 << 20

func readHalf(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, because(ReasonBootDataMissing, err)
	}
	if size := info.Size(); !info.Mode().IsRegular() || size == 0 || size > maxBootData {
		return nil, failf(ReasonBootDataMissing, "%s is empty, or no file of at most %d MiB", path, maxBootData>>20)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, because(ReasonBootDataMissing, err)
	}
	half, err := bootdata.Decode(string(text))
	if err != nil {
		return nil, failf(ReasonBootDataInvalid, "%s: %w", path, err)
	}
	return half, nil
}

func (r *Runner) chooseAccelerator(ctx context.Context, p *prepared) error {
	prover := qemu.Prover{
		Binary: r.settings.QEMU, Kernel: p.image.Kernel, Cache: r.settings.State, MachineType: r.settings.MachineType, Jail: r.jail(),
	}
	choice, err := prover.Choose(ctx, r.settings.Acceleration)
	if errors.Is(err, exec.ErrNotFound) {
		return because(ReasonQEMUMissing, err)
	}
	if err != nil {
		return because(ReasonAccelerationUnavailable, err)
	}
	if choice.Accelerator == qemu.TCG && !r.settings.AllowEmulation {
		return failf(ReasonAccelerationUnavailable,
			"%s Software emulation is allowed by the operator's setting service.machine.allowemulation alone (--allow-emulation of the runner)", choice.Reason)
	}
	p.choice = choice
	r.board.set(func(s *Status) { s.Accelerator, s.AcceleratorReason = string(choice.Accelerator), choice.Reason })
	r.log.Info("Accelerator", "accelerator", choice.Accelerator, "reason", choice.Reason)
	return nil
}

// lockDisks locks everything that at most one machine may use. The lock of the disk directory also covers the pod's
// network.
func (r *Runner) lockDisks(ctx context.Context, p *prepared) error {
	if err := os.MkdirAll(r.settings.State, 0o700); err != nil {
		return because(diskReason(err), err)
	}
	for _, path := range r.exclusive() {
		if _, err := os.Stat(path); err != nil {
			return because(ReasonDiskFailed, err)
		}
		lock, err := r.acquire(ctx, path)
		if err != nil {
			return because(diskReason(err), err)
		}
		p.inherit(lock.File())
		p.onClose(lock.Close)
	}
	return nil
}

func (r *Runner) makeDisks(ctx context.Context, p *prepared) error {
	for _, d := range r.settings.Disks {
		file, err := r.makeDisk(ctx, d)
		if err != nil {
			return because(diskReason(err), err)
		}
		p.handOver(d.Serial, file)
	}
	file, err := r.openEtcd(p.etcd)
	if err != nil {
		return because(diskReason(err), err)
	}
	if file != nil {
		p.handOver(etcdTag, file)
	}
	return nil
}

// openEtcd opens the disk with etcd's data; nil if the directory is shared.
func (r *Runner) openEtcd(store etcdfiles.Store) (*os.File, error) {
	switch {
	case store.Disk == "":
		return nil, nil //nolint:nilnil // there is no disk
	case store.Device:
		return disk.OpenDevice(store.Disk)
	}
	// An existing disk may be larger than a new one would be, and no new one is created if none is configured.
	file, err := disk.Open(store.Disk, max(r.settings.EtcdDisk, 1))
	if file != nil && errors.Is(err, disk.ErrShrink) {
		return file, nil
	}
	return file, err
}

// openImage opens the image's root file system, so that QEMU gets the file that was verified.
func (r *Runner) openImage(_ context.Context, p *prepared) error {
	if p.image.RootFS == "" {
		return nil
	}
	file, err := os.Open(p.image.RootFS)
	if err != nil {
		return because(ReasonImageUnavailable, err)
	}
	p.handOver(serialImage, file)
	return nil
}

// acquire waits for a lock, because the pod that this one replaces may still be shutting its machine down.
func (r *Runner) acquire(ctx context.Context, path string) (*disk.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, r.settings.Timeouts.Lock)
	defer cancel()
	for told := false; ; told = true {
		lock, err := disk.Acquire(path)
		if !errors.Is(err, disk.ErrLocked) {
			return lock, err
		}
		if !told {
			r.enter(StatePreparing, fmt.Sprintf("waiting for %s at most: %v", r.settings.Timeouts.Lock, err))
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Second):
		}
	}
}

// exclusive returns the directories and devices that at most one machine may use.
func (r *Runner) exclusive() []string {
	paths := []string{r.settings.State}
	if r.settings.Etcd != "" {
		paths = append(paths, r.settings.Etcd)
	}
	for _, share := range r.settings.Shares {
		paths = append(paths, share.Path)
	}
	return paths
}

func (r *Runner) makeDisk(ctx context.Context, d Disk) (*os.File, error) {
	path := r.settings.diskPath(d)
	if d.Serial == SerialOS {
		// The initrd mounts the root file system before anything could create one; the guest formats all other disks
		// itself. Formatting replaces the file, so it is opened afterwards.
		if err := disk.Create(path, d.Size); err != nil {
			return nil, err
		}
		if err := disk.Format(ctx, path, "ROOT"); err != nil {
			return nil, err
		}
	}
	file, err := disk.Open(path, d.Size)
	if err != nil && file != nil {
		err = errors.Join(err, file.Close())
	}
	return file, err
}

func diskReason(err error) Reason {
	switch {
	case errors.Is(err, disk.ErrLocked):
		return ReasonDiskLocked
	case errors.Is(err, syscall.ENOSPC):
		return ReasonDiskFull
	}
	return ReasonDiskFailed
}
