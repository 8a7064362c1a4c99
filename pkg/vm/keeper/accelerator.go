package keeper

import (
	"context"
	"errors"
	"os/exec"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

// Acceleration says how the accelerator is chosen.
type Acceleration struct {
	// Mode says whether the guest runs on KVM.
	Mode qemu.Mode
	// Kernel is the path of the kernel that a canary boots to prove that KVM works. Empty: nothing is proved.
	Kernel string
	// MachineType is QEMU's machine type.
	MachineType string
	// Cache is a directory that outlives the keeper, for what was proved.
	Cache string
	// Forbidden refuses emulation in software: it is a sentence that says how the user allows it. Empty allows it.
	Forbidden string
}

// ChooseAccelerator chooses KVM or emulation, and shows the choice in the status.
func (l *Launch) ChooseAccelerator(ctx context.Context, a Acceleration) (qemu.Choice, error) {
	k := l.keeper
	prover := qemu.Prover{Binary: k.settings.QEMU, Kernel: a.Kernel, Cache: a.Cache, MachineType: a.MachineType, Jail: l.Jail, Unproved: a.Kernel == ""}
	choice, err := prover.Choose(ctx, a.Mode)
	if errors.Is(err, exec.ErrNotFound) {
		return choice, Because(ReasonQEMUMissing, err)
	}
	if err != nil {
		return choice, Because(ReasonAccelerationUnavailable, err)
	}
	if choice.Accelerator == qemu.TCG && a.Forbidden != "" {
		return choice, Failf(ReasonAccelerationUnavailable, "%s %s", choice.Reason, a.Forbidden)
	}
	k.board.set(func(s *Status) { s.Accelerator, s.AcceleratorReason = string(choice.Accelerator), choice.Reason })
	k.log.Info("Accelerator", "accelerator", choice.Accelerator, "reason", choice.Reason)
	return choice, nil
}
