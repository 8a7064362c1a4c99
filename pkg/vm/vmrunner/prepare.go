package vmrunner

import (
	"context"
	"log/slog"

	"github.com/kvm-operator/kvm-operator/pkg/vm/cloudinit"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// preparation is what is done before QEMU is started, and its results.
type preparation struct {
	*keeper.Launch
	prepared
	settings Settings
	log      *slog.Logger
	companions
	// root is the directory below which the firmware is searched.
	root string
	// live is the part of the machine that can change.
	live vmconfig.Live
	// cloudInit is what the disk for cloud-init will contain.
	cloudInit cloudinit.Data
}

// prepared is what has been prepared of a machine.
type prepared struct {
	choice qemu.Choice
	// disks are those that are no CD drives, by name.
	disks map[string]opened
	// firmware is nil for QEMU's own.
	firmware *qemu.Firmware
	// tpmDescriptor is the file descriptor of the connection to the TPM in QEMU's process; 0 without one.
	tpmDescriptor int
	// cards are the network cards that are connected to something outside of QEMU, by their place.
	cards map[int]qemu.Network
	// cloudInitDescriptor is the file descriptor of the disk for cloud-init in QEMU's process.
	cloudInitDescriptor int
}

func newPreparation(s Settings, with companions, log *slog.Logger, l *keeper.Launch) *preparation {
	l.Jail.Offline = !s.talks()
	return &preparation{Launch: l, settings: s, log: log, companions: with, root: "/", prepared: prepared{disks: map[string]opened{}, cards: map[int]qemu.Network{}}}
}

func (r *Runner) prepare(ctx context.Context, l *keeper.Launch) error {
	if err := r.settings.Validate(); err != nil {
		return keeper.Because(keeper.ReasonSettingsInvalid, err)
	}
	return newPreparation(r.settings, r.companions, r.log, l).run(ctx)
}

// run does everything that can fail before something is started, the cheap steps first. A parked machine holds nothing,
// so that another pod can use its disks, and takes its configuration once it is started.
func (p *preparation) run(ctx context.Context) error {
	if err := p.readConfig(ctx); err != nil {
		return err
	}
	if err := p.park(ctx); err != nil {
		return err
	}
	err := p.Do(ctx,
		keeper.Step{What: "reading the configuration", Do: p.readConfig},
		keeper.Step{What: "reading the data for cloud-init", Do: p.readCloudInit},
		keeper.Step{What: "locking disks", Do: p.lockDisks},
		keeper.Step{What: "choosing the accelerator", Do: p.chooseAccelerator},
		keeper.Step{What: "opening disks", Do: p.openDisks},
		keeper.Step{What: "preparing the firmware", Do: p.prepareFirmware},
		keeper.Step{What: "starting the TPM", Do: p.startTPM},
		keeper.Step{What: "making the disk for cloud-init", Do: p.makeCloudInit},
		keeper.Step{What: "opening the network", Do: p.openNetwork},
		keeper.Step{What: "connecting the network cards", Do: p.connectCards},
	)
	if err != nil {
		return err
	}
	p.Machine = machine(p.settings, p.live, p.prepared)
	p.growth.begin(p.disks)
	p.tuner.begin(p.live, p.reachable())
	p.Configure = func(ctx context.Context, monitor *qmp.Client) {
		p.setMemory(ctx, monitor)
		p.identity.begin(ctx, monitor)
		p.tuner.insertFirst(ctx, monitor)
		p.display.begin(ctx, monitor)
	}
	return nil
}

func (p *preparation) readConfig(context.Context) error {
	live, ordered := p.tuner.latest()
	if !ordered {
		var err error
		if live, err = p.settings.readLive(); err != nil {
			return keeper.Because(keeper.ReasonSettingsInvalid, err)
		}
	}
	var problems map[string]string
	p.live, problems = fit(live, p.settings.Machine)
	for part, problem := range problems {
		p.log.Warn("The configuration does not fit the machine", "part", part, "problem", problem)
	}
	return nil
}

func (p *preparation) chooseAccelerator(ctx context.Context) (err error) {
	a := keeper.Acceleration{
		Mode: qemu.Mode(p.settings.Machine.Acceleration), Kernel: p.settings.Kernel, MachineType: p.settings.Machine.Type, Cache: p.settings.State,
	}
	if !p.settings.AllowEmulation {
		a.Forbidden = "Software emulation is allowed by the operator's setting service.machine.allowemulation alone (--allow-emulation of the runner)"
	}
	p.choice, err = p.ChooseAccelerator(ctx, a)
	return err
}

// setMemory tells the guest's balloon how much memory the guest is to have. A guest that has no driver keeps all of it,
// so the machine runs even if this fails.
func (p *preparation) setMemory(ctx context.Context, monitor *qmp.Client) {
	if p.live.CurrentRAM >= p.settings.Machine.MaximumRAM {
		return
	}
	if err := monitor.SetBalloon(ctx, p.live.CurrentRAM); err != nil {
		p.log.Error("The runner could not tell the guest how much memory it has", "error", err)
	}
}
