package qemu

import (
	"fmt"
	"net/netip"
	"slices"
)

// Display is a screen with a keyboard and a tablet, seen over VNC, SPICE or both.
type Display struct {
	// Outputs is how many screens there are, 1 to 16. 0 means 1.
	Outputs int
	// VNC is the path of the Unix socket on which QEMU serves VNC, at most 107 bytes. Empty: no VNC.
	VNC string
	// SPICE serves SPICE, with sound. Nil: no SPICE.
	SPICE *SPICE
	// Password denies access until QMP's set_password has set a password.
	Password bool
}

// SPICE is where and how QEMU serves SPICE. It is not encrypted.
type SPICE struct {
	// Address is the address to listen on. The zero value is 127.0.0.1.
	Address netip.Addr
	// Port is 1 to 65535.
	Port int
	// StreamingVideo is off, all, filter or, if empty, SPICE's default.
	StreamingVideo string
	// USBRedirects is how many devices of the client the guest can have, 0 to 14.
	USBRedirects int
}

const (
	maxOutputs      = 16  // VIRTIO_GPU_MAX_SCANOUTS of the virtio specification, 5.7
	maxUSBRedirects = 14  // ports of the controller, minus the tablet's
	outputMemory    = 256 // MiB of the host that a screen may take
)

func (m Machine) checkDisplay(found *FieldErrors) {
	d := m.Display
	if d == nil {
		return
	}
	found.unless(!m.microVM(), "Display", "a microvm has none")
	found.unless(d.VNC != "" || d.SPICE != nil, "Display", "it has VNC, SPICE or both")
	found.unless(d.Outputs >= 0 && d.Outputs <= maxOutputs, "Display.Outputs", "%d is not between 0 and %d", d.Outputs, maxOutputs)
	found.socket("Display.VNC", d.VNC)
	if s := d.SPICE; s != nil {
		found.unless(s.Port >= 1 && s.Port <= maxPort, "Display.SPICE.Port", "%d is not between 1 and %d", s.Port, maxPort)
		found.unless(slices.Contains([]string{"", "off", "all", "filter"}, s.StreamingVideo), "Display.SPICE.StreamingVideo",
			"%q is none of off, all and filter", s.StreamingVideo)
		found.unless(s.USBRedirects >= 0 && s.USBRedirects <= maxUSBRedirects, "Display.SPICE.USBRedirects",
			"%d is not between 0 and %d", s.USBRedirects, maxUSBRedirects)
	}
}

func (m Machine) addDisplay(a *arguments) {
	if m.Display == nil {
		return
	}
	outputs := max(1, m.Display.Outputs)
	a.add("-device", "virtio-vga", "id=video0", fmt.Sprintf("max_outputs=%d", outputs), fmt.Sprintf("max_hostmem=%dM", outputs*outputMemory))
	a.add("-device", "qemu-xhci", "id=usb", "p2=15", "p3=15")
	a.add("-device", "usb-tablet", "bus=usb.0")
	if m.Display.VNC != "" {
		a.add("-vnc", append([]string{"unix:" + escape(m.Display.VNC)}, m.Display.vncPassword()...)...)
	}
	if m.Display.SPICE != nil {
		m.addSPICE(a)
	}
}

func (d Display) vncPassword() []string {
	if d.Password {
		return []string{"password=on"}
	}
	return nil
}

func (m Machine) addSPICE(a *arguments) {
	s := m.Display.SPICE
	a.add("-spice", s.server(m.Display.Password)...)
	a.add("-chardev", "spicevmc", "id=vdagent", "name=vdagent")
	a.add("-device", "virtserialport", "id=vdagent", "chardev=vdagent", "name=com.redhat.spice.0")
	a.add("-audiodev", "spice", "id=audio0")
	a.add("-device", "ich9-intel-hda", "id=sound0")
	a.add("-device", "hda-duplex", "audiodev=audio0")
	for i := range s.USBRedirects {
		id := fmt.Sprintf("usbredir%d", i)
		a.add("-chardev", "spicevmc", "id="+id, "name=usbredir")
		a.add("-device", "usb-redir", "id="+id, "chardev="+id)
	}
}

func (s SPICE) server(password bool) []string {
	address, ticketing := s.Address, "disable-ticketing=on"
	if !address.IsValid() {
		address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if password {
		ticketing = "disable-ticketing=off"
	}
	server := []string{fmt.Sprintf("port=%d", s.Port), "addr=" + address.String(), ticketing}
	if s.StreamingVideo != "" {
		server = append(server, "streaming-video="+s.StreamingVideo)
	}
	return append(server, "seamless-migration=on")
}
