package qemu

import (
	"fmt"
	"regexp"
	"slices"
)

// Kernel is a Linux kernel that is booted without a boot loader.
type Kernel struct {
	// Image is the path of the kernel (bzImage, or an ELF file with a PVH note). Required.
	Image string
	// Initrd is the path of the initial RAM file system. Empty: none.
	Initrd string
	// CommandLine is the kernel's. For a console it needs console=ttyS0.
	CommandLine string
}

// FirmwareConfig is a file that is passed to the guest over fw_cfg, QEMU's firmware configuration device
// (docs/specs/fw_cfg in QEMU's sources).
type FirmwareConfig struct {
	// Name is opt/<reversed domain>/<item>, at most 55 bytes.
	Name string
	// File is the path of the file on the host.
	File string
}

const (
	maxFirmwareConfigName = 55
	// maxSocketPath is the capacity of struct sockaddr_un without the terminating zero (unix(7)).
	maxSocketPath = 107
)

var firmwareConfigPattern = regexp.MustCompile(`^opt/[A-Za-z0-9][A-Za-z0-9._/-]*$`)

func (m Machine) checkBoot(found *FieldErrors) {
	if m.Kernel != nil {
		found.unless(m.Kernel.Image != "", "Kernel.Image", "the path is empty")
	}
	found.unless(m.Kernel != nil || !m.microVM(), "Kernel", "a microvm boots from a kernel alone")
	var names []string
	for i, c := range m.FirmwareConfig {
		field := fmt.Sprintf("FirmwareConfig[%d]", i)
		found.unless(firmwareConfigPattern.MatchString(c.Name), field+".Name", "%q is not opt/ and letters, digits, '.', '_', '-' or '/'", c.Name)
		found.unless(len(c.Name) <= maxFirmwareConfigName, field+".Name", "%q has more than %d bytes", c.Name, maxFirmwareConfigName)
		found.unless(!slices.Contains(names, c.Name), field+".Name", "%q is there twice", c.Name)
		found.unless(c.File != "", field+".File", "the path is empty")
		names = append(names, c.Name)
	}
}

func (m Machine) addBoot(a *arguments) {
	if m.Kernel != nil {
		a.add("-kernel", m.Kernel.Image)
		if m.Kernel.Initrd != "" {
			a.add("-initrd", m.Kernel.Initrd)
		}
		if m.Kernel.CommandLine != "" {
			a.add("-append", m.Kernel.CommandLine)
		}
	}
	m.addFirmware(a)
	if m.BootMenu {
		a.add("-boot", "menu=on")
	}
	for _, c := range m.FirmwareConfig {
		a.add("-fw_cfg", text("name", c.Name), text("file", c.File))
	}
}
