// Package qemu turns a typed description of a virtual machine into QEMU's command line, and finds out whether KVM can
// run it. The command line works with QEMU 7.2 and newer; the builder is pure: no I/O, no clock, no randomness.
package qemu

import (
	"fmt"
	"strings"
)

// Machine is a virtual machine as QEMU sees it. Options are those of QEMU's manual page ("qemu-system-x86_64(1)").
type Machine struct {
	// Name is shown by QEMU's monitor and in the names of its threads. Required.
	Name string
	// UUID is the guest's SMBIOS UUID, in its usual form of 36 characters. Empty: all zero.
	UUID string
	// Type is q35 (the default: the newest that QEMU has), a specific version such as pc-q35-7.2, or microvm. What a
	// microvm lacks (firmware other than its own, CDs, hot-plug, a display, a TPM) is an error.
	Type string
	// Accelerator runs the guest's code. Required.
	Accelerator Accelerator
	// CPU is the processor.
	CPU CPU
	// Memory is the guest's memory in MiB, at least 1; see MiB. A balloon (device balloon0) can reclaim some of it, and
	// pages that a guest frees are returned automatically.
	Memory int64
	// Kernel is booted directly. Nil: the guest boots from its disks or CDs by firmware.
	Kernel *Kernel
	// Firmware is UEFI firmware. Nil: QEMU's own, SeaBIOS.
	Firmware *Firmware
	// Disks are virtio block devices, in the order in which the guest finds them.
	Disks []Disk
	// CDs are drives for removable media, at most 6.
	CDs []CD
	// Networks are network interfaces, in the order in which the guest finds them.
	Networks []Network
	// Shares are directories of the host that the guest can mount by their tags.
	Shares []Share
	// FirmwareConfig are files that the guest finds below /sys/firmware/qemu_fw_cfg/by_name.
	FirmwareConfig []FirmwareConfig
	// Monitor is the path of the Unix socket on which QEMU serves QMP, at most 107 bytes. Empty: none.
	Monitor string
	// MonitorDescriptor and AgentDescriptor are the file descriptors, from 3, that sockets which listen at these paths
	// have in QEMU's process: then QEMU needs no directory for them. 0: QEMU creates the socket.
	MonitorDescriptor, AgentDescriptor int
	// Agent is the path of the Unix socket that QEMU serves for the guest agent's port, at most 107 bytes. Empty: no port.
	Agent string
	// AgentPort is the name of that port, as the guest sees it (/sys/class/virtio-ports/*/name): letters, digits, '.', '_'
	// or '-', at most 64 bytes. Empty: org.qemu.guest_agent.0, that of the QEMU guest agent.
	AgentPort string
	// TPM is the path of the control socket that swtpm serves, at most 107 bytes. Empty: no TPM.
	TPM string
	// TPMDescriptor is the file descriptor, from 3, that a connection to swtpm's control socket has in QEMU's process. It
	// stands for TPM. 0: QEMU connects to TPM.
	TPMDescriptor int
	// Display is a screen, keyboard and tablet. Nil: none, the guest has only its serial console.
	Display *Display
	// Clock is the guest's real-time clock.
	Clock Clock
	// BootMenu shows the firmware's menu.
	BootMenu bool
	// Paused makes the guest wait for QMP's "cont" (-S).
	Paused bool
	// NoReboot ends QEMU when the guest reboots. Otherwise the guest reboots inside the same process.
	NoReboot bool
	// ExtraArgs are appended as they are.
	ExtraArgs []string
}

const (
	typeQ35     = "q35"
	typeMicroVM = "microvm"
	pinnedQ35   = "pc-q35-"

	guestAgentPort = "org.qemu.guest_agent.0"
)

// Args returns QEMU's command line without the program's name. The serial console is on its standard input and output;
// QEMU's own messages go to standard error. The error is a FieldErrors with everything that is wrong.
func (m Machine) Args() ([]string, error) {
	m = m.complete()
	if err := m.check(); err != nil {
		return nil, err
	}
	var a arguments
	for _, add := range []func(Machine, *arguments){
		Machine.addProcess, Machine.addBoard, Machine.addCPUs, Machine.addMemory, Machine.addBoot, Machine.addChannels,
		Machine.addDisks, Machine.addCDs, Machine.addNetworks, Machine.addShares, Machine.addDisplay,
	} {
		add(m, &a)
	}
	return append(a, m.ExtraArgs...), nil
}

// complete fills in the defaults, so that checks and builders see the same machine.
func (m Machine) complete() Machine {
	if m.Type == "" {
		m.Type = typeQ35
	}
	if m.AgentPort == "" {
		m.AgentPort = guestAgentPort
	}
	m.CPU = m.CPU.complete(m.Accelerator)
	return m
}

func (m Machine) microVM() bool { return m.Type == typeMicroVM }

// device returns the name of a virtio device on the machine's bus: PCI, or memory-mapped on a microvm, which has no
// PCI.
func (m Machine) device(kind string) string {
	if m.microVM() {
		return kind + "-device"
	}
	return kind + "-pci"
}

func (m Machine) addProcess(a *arguments) {
	a.add("-name", text("guest", m.Name), "debug-threads=on")
	if m.UUID != "" {
		a.add("-uuid", m.UUID)
	}
	a.add("-no-user-config")
	a.add("-nodefaults")
	a.add("-display", "none")
	// This limits a guest that breaks out of its devices. Directories that are shared by 9p need none of it.
	a.add("-sandbox", "on", "obsolete=deny", "elevateprivileges=deny", "spawn=deny", "resourcecontrol=deny")
	if m.Paused {
		a.add("-S")
	}
	if m.NoReboot {
		a.add("-no-reboot")
	}
}

func (m Machine) addBoard(a *arguments) {
	a.add("-machine", m.boardOptions()...)
	if m.Accelerator == TCG {
		a.add("-accel", "tcg", "thread=multi")
	} else {
		a.add("-accel", "kvm")
	}
	a.add("-rtc", m.clockOptions()...)
	if m.microVM() {
		return
	}
	// A suspended node is down, because nothing resumes it.
	a.add("-global", "ICH9-LPC.disable_s3=1")
	a.add("-global", "ICH9-LPC.disable_s4=1")
	if m.Accelerator == KVM {
		a.add("-global", "kvm-pit.lost_tick_policy=delay")
	}
}

func (m Machine) boardOptions() []string {
	options := []string{m.Type, "usb=off", "dump-guest-core=off"}
	if m.microVM() {
		// Through ACPI the guest finds its devices, regardless of its kernel's configuration, and is notified of a
		// shutdown.
		options = append(options, "acpi=on", "rtc=on")
	} else {
		options = append(options, "vmport=off")
	}
	if m.Accelerator == KVM && !m.microVM() {
		// Under KVM guests have a better clock. In software emulation the HPET is the most stable: without it a Linux
		// with several CPUs starts on jiffies, and on a busy host it may stay there.
		options = append(options, "hpet=off")
	}
	if m.Firmware != nil {
		options = append(options, m.Firmware.boardOptions()...)
	}
	if m.sharesMemory() {
		options = append(options, "memory-backend="+memoryID)
	}
	return options
}

func (m Machine) addChannels(a *arguments) {
	a.add("-chardev", "stdio", "id=console", "signal=off")
	a.add("-serial", "chardev:console")
	if m.Monitor != "" {
		a.add("-chardev", served("monitor", m.Monitor, m.MonitorDescriptor)...)
		a.add("-mon", "chardev=monitor", "mode=control")
	}
	a.add("-object", "rng-random", "id=rng0", "filename=/dev/urandom")
	a.add("-device", m.device("virtio-rng"), "rng=rng0")
	if m.hasPorts() {
		a.add("-device", m.device("virtio-serial"), "id=ports")
	}
	if m.Agent != "" {
		a.add("-chardev", served("agent", m.Agent, m.AgentDescriptor)...)
		a.add("-device", "virtserialport", "id=agent", "chardev=agent", "name="+m.AgentPort)
	}
	if m.hasTPM() {
		connection := text("path", m.TPM)
		if m.TPMDescriptor != 0 {
			connection = fmt.Sprintf("fd=%d", m.TPMDescriptor)
		}
		a.add("-chardev", "socket", "id=tpm", connection)
		a.add("-tpmdev", "emulator", "id=tpm0", "chardev=tpm")
		a.add("-device", "tpm-tis", "tpmdev=tpm0")
	}
}

// hasPorts reports whether the guest needs a virtio-serial bus.
func (m Machine) hasPorts() bool {
	return m.Agent != "" || m.Display != nil && m.Display.SPICE != nil
}

// served returns the options of a Unix socket that QEMU listens on, without waiting for a client.
func served(id, path string, descriptor int) []string {
	where := text("path", path)
	if descriptor > 0 {
		where = fmt.Sprintf("fd=%d", descriptor)
	}
	return []string{"socket", "id=" + id, where, "server=on", "wait=off"}
}

// arguments is a command line under construction.
type arguments []string

// add appends an option and, if there are any, the parts of its value.
func (a *arguments) add(option string, parts ...string) {
	*a = append(*a, option)
	if len(parts) > 0 {
		*a = append(*a, strings.Join(parts, ","))
	}
}

// text returns one part of an option's value, with any characters.
func text(key, value string) string { return key + "=" + escape(value) }

// escape doubles commas: one separates the parts of a value, two of them are a comma.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }

func (m Machine) hasTPM() bool { return m.TPM != "" || m.TPMDescriptor != 0 }
