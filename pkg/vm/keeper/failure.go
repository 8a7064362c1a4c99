package keeper

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

// Reason is why a keeper ended, as given in the termination message.
type Reason string

// The Reasons. Those of all kinds of machines are here, so that each has its own exit code.
const (
	ReasonPoweredDown             Reason = "PoweredDown"
	ReasonGuestShutDown           Reason = "GuestShutDown"
	ReasonInternal                Reason = "Internal"
	ReasonSettingsInvalid         Reason = "SettingsInvalid"
	ReasonBootDataMissing         Reason = "BootDataMissing"
	ReasonBootDataInvalid         Reason = "BootDataInvalid"
	ReasonImageUnavailable        Reason = "ImageUnavailable"
	ReasonImageMismatch           Reason = "ImageMismatch"
	ReasonDiskFull                Reason = "DiskFull"
	ReasonDiskLocked              Reason = "DiskLocked"
	ReasonDiskFailed              Reason = "DiskFailed"
	ReasonNetworkFailed           Reason = "NetworkFailed"
	ReasonAccelerationUnavailable Reason = "AccelerationUnavailable"
	ReasonQEMUMissing             Reason = "QEMUMissing"
	ReasonQEMURefused             Reason = "QEMURefused"
	ReasonQEMUCrashed             Reason = "QEMUCrashed"
	ReasonMonitorSilent           Reason = "MonitorSilent"
	ReasonGuestKilled             Reason = "GuestKilled"
	ReasonFirmwareMissing         Reason = "FirmwareMissing"
)

// codes are the exit codes. They are an interface: alerts and scripts depend on them.
var codes = map[Reason]int{
	ReasonPoweredDown: 0, ReasonGuestShutDown: 0,
	ReasonInternal: 1, ReasonSettingsInvalid: 2,
	ReasonBootDataMissing: 10, ReasonBootDataInvalid: 11,
	ReasonImageUnavailable: 12, ReasonImageMismatch: 13,
	ReasonDiskFull: 14, ReasonDiskLocked: 15, ReasonDiskFailed: 16,
	ReasonNetworkFailed:           17,
	ReasonAccelerationUnavailable: 18,
	ReasonQEMUMissing:             19, ReasonQEMURefused: 20, ReasonQEMUCrashed: 21, ReasonMonitorSilent: 22,
	ReasonGuestKilled: 23, ReasonFirmwareMissing: 24,
}

// ExitCode returns the exit code of the program, 0 if nothing went wrong.
func (r Reason) ExitCode() int { return codes[r] }

// End is how a keeper ended.
type End struct {
	// Reason is one of a fixed set.
	Reason Reason
	// Message is a sentence for a person.
	Message string
	// By is what ended a machine by itself, as QEMU has it (RunState, "ShutdownCause"): guest-shutdown, guest-reset,
	// guest-panic. Empty otherwise.
	By string
}

// failure is an error with the reason for the keeper's end.
type failure struct {
	reason Reason
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Because gives an error its reason, unless it has one.
func Because(reason Reason, err error) error {
	var known *failure
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &failure{reason: reason, err: err}
}

// BecauseOfDisk gives an error about a disk, or another file, its reason, unless it has one.
func BecauseOfDisk(err error) error {
	switch {
	case errors.Is(err, disk.ErrLocked):
		return Because(ReasonDiskLocked, err)
	case errors.Is(err, syscall.ENOSPC):
		return Because(ReasonDiskFull, err)
	}
	return Because(ReasonDiskFailed, err)
}

// Failf returns an error with a reason.
func Failf(reason Reason, format string, arguments ...any) error {
	return &failure{reason: reason, err: fmt.Errorf(format, arguments...)}
}

// EndOf returns the End that an error leads to.
func EndOf(err error) End {
	var known *failure
	if errors.As(err, &known) {
		return End{Reason: known.reason, Message: err.Error()}
	}
	return End{Reason: ReasonInternal, Message: err.Error()}
}
