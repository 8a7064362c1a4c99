package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/jail"
)

// Prover finds out whether KVM runs guests on this host. That /dev/kvm can be opened proves nothing: where KVM is
// nested or imitated, it may open and still abort QEMU or never start a kernel. So a canary is run first: a machine
// with only the kernel that the real one is going to boot.
type Prover struct {
	// Binary is QEMU. Empty: qemu-system-x86_64 in PATH.
	Binary string
	// Kernel is the path of the kernel that the machine is going to boot. Mode auto needs it if there is a Device.
	Kernel string
	// MachineType and CPUModel are those of the machine, see Machine.Type and CPU.Model.
	MachineType, CPUModel string
	// Unproved lets mode auto use KVM if its device can be opened, without a canary.
	Unproved bool
	// Cache is a directory that outlives the process; it is created if needed. It keeps the result of a canary until
	// the host boots again, for each combination of QEMU, kernel, MachineType and CPUModel, and processes that start
	// together run one canary. To run it again, remove the files. Empty: nothing is kept.
	Cache string
	// BootID is what changes when the host boots: the path of a file that contains it (it begins with "/") or the value
	// itself. Empty: /proc/sys/kernel/random/boot_id, which a container shares with its host.
	BootID string
	// Device is KVM's. Empty: /dev/kvm. QEMU itself always opens /dev/kvm.
	Device string
	// Jail is the sandbox of the canary's QEMU, which sees the kernel in addition to its Paths.
	Jail jail.Jail
	// Timeout is how long the canary may take, including QEMU's start. 0: 20 s; a kernel that runs takes one or two.
	Timeout time.Duration
}

// Choose chooses the accelerator for a mode. Mode kvm fails if the device cannot be opened, and proves nothing. Mode
// auto fails if a canary is needed and cannot be run: there is no Kernel or no QEMU, or ctx ends.
func (p Prover) Choose(ctx context.Context, mode Mode) (Choice, error) {
	p = p.complete()
	switch Mode(strings.ToLower(string(mode))) {
	case "", ModeAuto:
		return p.prove(ctx)
	case ModeKVM:
		if err := p.openDevice(); err != nil {
			return Choice{}, fmt.Errorf("use KVM as acceleration kvm demands: %w", err)
		}
		return Choice{KVM, "KVM is demanded by the setting; it was not proved to work."}, nil
	case ModeTCG:
		return Choice{TCG, "Software emulation is demanded by the setting."}, nil
	}
	return Choice{}, fmt.Errorf("acceleration %q is none of auto, kvm and tcg", mode)
}

func (p Prover) complete() Prover {
	for _, field := range []struct {
		value    *string
		standard string
	}{{&p.Binary, "qemu-system-x86_64"}, {&p.BootID, "/proc/sys/kernel/random/boot_id"}, {&p.Device, "/dev/kvm"}} {
		if *field.value == "" {
			*field.value = field.standard
		}
	}
	if p.Timeout == 0 {
		p.Timeout = 20 * time.Second
	}
	return p
}

func (p Prover) prove(ctx context.Context) (Choice, error) {
	if err := p.openDevice(); err != nil {
		return Choice{TCG, fmt.Sprintf("KVM cannot be used: %s.", err)}, nil
	}
	if p.Unproved {
		return Choice{KVM, p.Device + " opens. Without a kernel for a canary, KVM was not proved to work."}, nil
	}
	if p.Kernel == "" {
		return Choice{}, errors.New("prove that KVM works: there is no kernel to send a canary with")
	}
	if p.Cache == "" {
		return p.sendCanary(ctx)
	}
	return p.remember(ctx)
}

func (p Prover) openDevice() error {
	device, err := os.OpenFile(p.Device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return device.Close()
}

func (p Prover) sendCanary(ctx context.Context) (Choice, error) {
	problem, err := canary{
		binary: p.Binary, kernel: p.Kernel, machineType: p.MachineType, cpuModel: p.CPUModel, accelerator: KVM, timeout: p.Timeout,
		jail: p.Jail,
	}.send(ctx)
	switch {
	case err != nil:
		return Choice{}, err
	case problem != "":
		return Choice{TCG, fmt.Sprintf("KVM cannot be used: %s opens but %s.", p.Device, problem)}, nil
	}
	return Choice{KVM, "KVM booted a canary with this machine's kernel."}, nil
}
