package qemu

import (
	"fmt"
	"regexp"
	"strings"
)

// FieldError says which field of a Machine breaks which rule.
type FieldError struct {
	// Field is its path, such as Disks[1].Serial.
	Field string
	// Rule is what is wrong with its value.
	Rule string
}

// Error returns the field and the rule.
func (e FieldError) Error() string { return e.Field + ": " + e.Rule }

// FieldErrors are all errors of a Machine, so that a user can fix them at once.
type FieldErrors []FieldError

// Error returns one line.
func (e FieldErrors) Error() string {
	texts := make([]string, 0, len(e))
	for _, one := range e {
		texts = append(texts, one.Error())
	}
	return strings.Join(texts, "; ")
}

// unless adds an error unless the rule holds.
func (e *FieldErrors) unless(holds bool, field, rule string, args ...any) {
	if !holds {
		*e = append(*e, FieldError{Field: field, Rule: fmt.Sprintf(rule, args...)})
	}
}

func (e *FieldErrors) socket(field, path string) {
	e.unless(len(path) <= maxSocketPath, field, "%q has more than the %d bytes of a Unix socket's path", path, maxSocketPath)
}

var (
	uuidPattern  = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)
	portPattern  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	boardPattern = regexp.MustCompile(`^(q35|microvm|pc-q35-[0-9]+\.[0-9]+)$`)
)

// check checks a completed machine.
func (m Machine) check() error {
	var found FieldErrors
	for _, c := range []func(Machine, *FieldErrors){
		Machine.checkBoard, Machine.checkClock, Machine.checkCPU, Machine.checkBoot, Machine.checkFirmware, Machine.checkSockets, Machine.checkDisks,
		Machine.checkCDs, Machine.checkNetworks, Machine.checkShares, Machine.checkDisplay, Machine.checkRoom,
	} {
		c(m, &found)
	}
	if len(found) == 0 {
		return nil
	}
	return found
}

func (m Machine) checkBoard(found *FieldErrors) {
	found.unless(m.Name != "", "Name", "it is empty")
	found.unless(m.UUID == "" || uuidPattern.MatchString(m.UUID), "UUID", "%q is not a UUID", m.UUID)
	found.unless(boardPattern.MatchString(m.Type), "Type", "%q is none of q35, pc-q35-<version> and microvm", m.Type)
	found.unless(m.Accelerator == KVM || m.Accelerator == TCG, "Accelerator", "%q is neither kvm nor tcg", m.Accelerator)
	found.unless(m.Memory >= 1, "Memory", "%d MiB: a machine has 1 MiB or more", m.Memory)
}

func (m Machine) checkSockets(found *FieldErrors) {
	found.socket("Monitor", m.Monitor)
	found.socket("Agent", m.Agent)
	found.unless(portPattern.MatchString(m.AgentPort), "AgentPort", "%q is not 1 to 64 letters, digits, '.', '_' or '-'", m.AgentPort)
	found.socket("TPM", m.TPM)
	found.unless(!m.hasTPM() || !m.microVM(), "TPM", "a microvm has none")
	found.unless(m.TPMDescriptor == 0 || m.TPMDescriptor > 2, "TPMDescriptor", "%d is less than 3", m.TPMDescriptor)
}

const (
	// pciSlots are the slots of a q35's root bus except those of the host bridge and of the ICH9.
	pciSlots = 30
	// mmioSlots are the virtio-mmio transports of a microvm with ACPI (hw/i386/microvm.c).
	mmioSlots = 24
)

// checkRoom counts the devices that take a slot of the machine's bus. QEMU's own message names a device, but not the
// reason.
func (m Machine) checkRoom(found *FieldErrors) {
	devices := len(m.Disks) + len(m.Networks) + len(m.Shares) + 2 // balloon and random number generator
	if m.hasPorts() {
		devices++
	}
	if m.Display != nil {
		devices += 2
		if m.Display.SPICE != nil {
			devices++
		}
	}
	room := pciSlots
	if m.microVM() {
		room = mmioSlots
	}
	found.unless(devices <= room, "Disks, Networks, Shares", "with the machine's own they are %d devices; it has room for %d", devices, room)
}
