package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/egress"
	"github.com/kvm-operator/kvm-operator/pkg/vm/jail"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/usernet"
)

// The guest's network is the one that smolvm gives its guests, so that what is written for one of them works here.
var (
	guestAddress   = netip.MustParsePrefix("100.96.0.2/30")
	gatewayAddress = netip.MustParseAddr("100.96.0.1")
	guestMAC       = net.HardwareAddr{0x02, 0x53, 0x4d, 0x00, 0x00, 0x02}
	gatewayMAC     = net.HardwareAddr{0x02, 0x53, 0x4d, 0x00, 0x00, 0x01}
)

// mtu is that of the guest's card, in bytes.
const mtu = 65535

// agentPort is the name of the agent's port in the guest.
const agentPort = "dev.smolvm.agent.0"

// commandLine is the kernel's. A guest that panics ends its QEMU. Without edd=off, the kernel asks the BIOS for disks.
const commandLine = "console=ttyS0 edd=off panic=-1 quiet"

// preparation is what is done before QEMU is started.
type preparation struct {
	*keeper.Launch
	*Instance
	image  ociimage.Image
	choice qemu.Choice
	disks  []qemu.Disk
	card   *qemu.Network
	config string
}

func (i *Instance) prepare(ctx context.Context, l *keeper.Launch) error {
	p := &preparation{Launch: l, Instance: i}
	l.Jail.Offline = true
	err := l.Do(ctx,
		keeper.Step{What: "locking the machine", Do: p.takeLock},
		keeper.Step{What: "publishing the ports", Do: p.connect},
		keeper.Step{What: "opening the image", Do: p.openImage},
		keeper.Step{What: "opening the disks", Do: p.openDisks},
		keeper.Step{What: "choosing the accelerator", Do: p.chooseAccelerator},
		keeper.Step{What: "writing the guest's configuration", Do: p.writeConfig},
	)
	if err != nil {
		i.note(err)
		return err
	}
	l.Machine = p.machine()
	l.Jail.Paths = append(l.Jail.Paths, jail.Path{Name: i.plan.Host.Kernel}, jail.Path{Name: i.plan.Host.Initrd})
	return nil
}

// takeLock keeps the lock that the server took, so that at no moment the machine is free between the two processes.
func (p *preparation) takeLock(ctx context.Context) error {
	if p.lock == nil {
		return p.Lock(ctx, p.plan.Directory)
	}
	p.Inherit(p.lock)
	return nil
}

// machine is the virtual machine as QEMU sees it.
func (p *preparation) machine() qemu.Machine {
	m := qemu.Machine{
		Accelerator: p.choice.Accelerator, CPU: qemu.CPU{Count: p.plan.CPUs}, Memory: p.plan.MemoryMB,
		Kernel:         &qemu.Kernel{Image: p.plan.Host.Kernel, Initrd: p.plan.Host.Initrd, CommandLine: commandLine},
		Disks:          p.disks,
		FirmwareConfig: []qemu.FirmwareConfig{{Name: agentwire.ConfigName, File: p.config}},
		AgentPort:      agentPort,
		NoReboot:       true,
	}
	if p.card != nil {
		m.Networks = []qemu.Network{*p.card}
	}
	return m
}

// openImage takes the image from the cache, where it stays until the machine has ended.
func (p *preparation) openImage(context.Context) error {
	cache := ociimage.Cache{Directory: p.plan.Images}
	image, err := cache.Open(p.plan.Image)
	if err != nil {
		return keeper.Because(keeper.ReasonImageUnavailable, err)
	}
	p.image = image
	p.OnClose(image.Release)
	file, err := os.Open(image.Root)
	descriptor, err := p.GiveDisk(file, err)
	p.disks = append(p.disks, qemu.Disk{Serial: agentwire.DiskRoot, Path: image.Root, Descriptor: descriptor, ReadOnly: true})
	return err
}

func (p *preparation) openDisks(context.Context) error {
	for _, d := range []struct{ serial, name string }{{agentwire.DiskOverlay, OverlayName}, {agentwire.DiskStorage, StorageName}} {
		path := filepath.Join(p.plan.Directory, d.name)
		descriptor, err := p.GiveDisk(ownfile.Open(path, os.O_RDWR, 0))
		if err != nil {
			return err
		}
		p.disks = append(p.disks, qemu.Disk{Serial: d.serial, Path: path, Descriptor: descriptor})
	}
	return nil
}

func (p *preparation) chooseAccelerator(ctx context.Context) (err error) {
	h := p.plan.Host
	a := keeper.Acceleration{Mode: h.Acceleration, Kernel: h.Kernel, Cache: h.Proved}
	if !h.AllowEmulation {
		a.Forbidden = "Software emulation is allowed by --allow-emulation of smolvm serve start"
	}
	if err := p.Readable(h.Kernel, h.Initrd); err != nil {
		return keeper.Because(keeper.ReasonImageUnavailable, err)
	}
	p.choice, err = p.ChooseAccelerator(ctx, a)
	return err
}

// writeConfig tells the guest what it runs. Its environment may hold secrets.
func (p *preparation) writeConfig(context.Context) error {
	config := agentwire.Config{Name: p.plan.Name, Process: p.image.Process.Override(p.plan.Process)}
	if p.card != nil {
		config.Network = &agentwire.Network{Address: guestAddress, Gateway: gatewayAddress, DNS: gatewayAddress, MTU: mtu}
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	p.config = filepath.Join(p.plan.Run, "config.json")
	return p.WriteOnce(p.config, text)
}

// connect publishes the ports before anything else is done, and makes the guest's card.
func (p *preparation) connect(ctx context.Context) error {
	n := p.plan.Network
	if n == nil {
		return nil
	}
	options := usernet.Options{
		MAC: guestMAC, Address: guestAddress.Addr(), Gateway: gatewayAddress, GatewayMAC: gatewayMAC, MTU: mtu, Listen: n.Publish,
		Allow: n.Policy.Allows, Refused: p.events.Refused, Resolvers: n.Resolvers,
		ReachHost: n.Policy.Floor == egress.FloorOff, Log: logr.FromSlogHandler(p.log.Handler()),
	}
	for _, port := range n.Ports {
		options.Ports = append(options.Ports, usernet.Port{Protocol: usernet.TCP, Host: port.Host, Guest: port.Guest})
	}
	network, err := usernet.Open(options)
	if err != nil {
		return keeper.Because(keeper.ReasonNetworkFailed, err)
	}
	p.OnClose(network.Close)
	ours, theirs, err := usernet.Card()
	if err != nil {
		return fmt.Errorf("connecting the guest's card: %w", err)
	}
	p.Reach = keeper.Reach{Address: guestAddress.Addr(), Sent: network.Sent, Dial: network.DialContext}
	p.ServeNetwork(ctx, func(ctx context.Context) error { return network.Serve(ctx, ours) })
	p.card = &qemu.Network{SocketDescriptor: p.Give(theirs), MAC: guestMAC.String(), MTU: mtu}
	return nil
}
