package noderunner

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdfiles"
	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
	"github.com/kvm-operator/kvm-operator/pkg/vm/jail"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/osimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

// preparation is what is done before QEMU is started, and its results.
type preparation struct {
	*keeper.Launch
	prepared
	settings Settings
	log      *slog.Logger
	// halves are the parts of the boot data, and bootData is their merge with what only the runner knows.
	halves   [][]byte
	bootData []byte
}

// prepared is what has been prepared of a machine.
type prepared struct {
	image  osimage.Local
	choice qemu.Choice
	etcd   etcdfiles.Store
	// descriptors are the file descriptors of disks in QEMU's process, by serial number.
	descriptors map[string]int
	// mapped says of shares, by tag, that the guest's owners and modes are in extended attributes.
	mapped map[string]bool
	// card is the guest's network card.
	card qemu.Network
}

func newPreparation(s Settings, log *slog.Logger, l *keeper.Launch) *preparation {
	// A machine's packets arrive by file descriptor; QEMU's own network needs that of the pod.
	l.Jail.Offline = s.Network != NetworkUser
	return &preparation{Launch: l, settings: s, log: log, prepared: prepared{descriptors: map[string]int{}, mapped: map[string]bool{}}}
}

func (r *Runner) prepare(ctx context.Context, l *keeper.Launch) error {
	// A killed runner may have left the file.
	_ = os.Remove(r.settings.ignition())
	if err := r.settings.Validate(); err != nil {
		return keeper.Because(keeper.ReasonSettingsInvalid, err)
	}
	if err := newPreparation(r.settings, r.log, l).run(ctx); err != nil {
		return err
	}
	r.health.address, r.health.client = l.Reach.Address, healthClient(l.Reach.Dial)
	return nil
}

// run does everything that can fail before something is started, the cheap steps first: a mistake in boot data is
// reported before an image is downloaded. The network is taken last because downloads need it.
func (p *preparation) run(ctx context.Context) error {
	err := p.Do(ctx,
		keeper.Step{What: "reading boot data", Do: p.readBootData},
		keeper.Step{What: "locking disks", Do: p.lockDisks},
		keeper.Step{What: "checking etcd's data", Do: p.findEtcd},
		keeper.Step{What: "getting back the pod's network", Do: p.repairNetwork},
		keeper.Step{What: "getting the image " + p.settings.Image.Name, Do: p.getImage},
		keeper.Step{What: "choosing the accelerator", Do: p.chooseAccelerator},
		keeper.Step{What: "making disks", Do: p.makeDisks},
		keeper.Step{What: "preparing shares", Do: p.prepareShares},
		keeper.Step{What: "opening the image", Do: p.openImage},
		keeper.Step{What: "taking the pod's network", Do: p.takeNetwork},
	)
	if err != nil {
		return err
	}
	p.Machine = machine(p.settings, p.prepared)
	p.Jail.Paths = []jail.Path{{Name: p.image.Kernel}, {Name: p.image.Initrd}}
	if err := p.WriteOnce(p.settings.ignition(), p.bootData); err != nil {
		return fmt.Errorf("storing the merged boot data: %w", err)
	}
	p.showShares()
	return nil
}

func (p *preparation) readBootData(context.Context) error {
	for _, path := range p.settings.BootData {
		half, err := readHalf(path)
		if err != nil {
			return err
		}
		p.halves = append(p.halves, half)
	}
	_, err := bootdata.Merge(guestOwn(p.settings, p.etcd), p.halves...)
	return keeper.Because(keeper.ReasonBootDataInvalid, err)
}

// findEtcd inspects the volume once it is locked, because before that the machine that this one replaces may still use
// it. Only then is it known what the guest needs to know.
func (p *preparation) findEtcd(context.Context) error {
	var err error
	if p.etcd, err = etcdfiles.Find(p.settings.Etcd, p.settings.EtcdDisk > 0); err != nil {
		return keeper.Because(keeper.ReasonDiskFailed, err)
	}
	p.bootData, err = bootdata.Merge(guestOwn(p.settings, p.etcd), p.halves...)
	p.halves = nil
	return keeper.Because(keeper.ReasonBootDataInvalid, err)
}

// maxBootData is larger than any Kubernetes object, in bytes.
const maxBootData = 2 << 20

func readHalf(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, keeper.Because(keeper.ReasonBootDataMissing, err)
	}
	if size := info.Size(); !info.Mode().IsRegular() || size == 0 || size > maxBootData {
		return nil, keeper.Failf(keeper.ReasonBootDataMissing, "%s is empty, or no file of at most %d MiB", path, maxBootData>>20)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, keeper.Because(keeper.ReasonBootDataMissing, err)
	}
	half, err := bootdata.Decode(string(text))
	if err != nil {
		return nil, keeper.Failf(keeper.ReasonBootDataInvalid, "%s: %w", path, err)
	}
	return half, nil
}

func (p *preparation) chooseAccelerator(ctx context.Context) (err error) {
	a := keeper.Acceleration{
		Mode: p.settings.Acceleration, Kernel: p.image.Kernel, MachineType: p.settings.MachineType, Cache: p.settings.State,
	}
	if !p.settings.AllowEmulation {
		a.Forbidden = "Software emulation is allowed by the operator's setting service.machine.allowemulation alone (--allow-emulation of the runner)"
	}
	p.choice, err = p.ChooseAccelerator(ctx, a)
	return err
}
