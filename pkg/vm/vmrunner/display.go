package vmrunner

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

const (
	// readAccessEvery is how often the runner reads the Secret of the display, which the kubelet replaces.
	readAccessEvery = time.Second
	// mostUSBRedirects is how many USB devices of a viewer QEMU's controller has ports for.
	mostUSBRedirects = 14
)

// display is the display of a machine, which is locked unless its Secret has a valid password.
type display struct {
	settings Settings
	log      *slog.Logger

	mu sync.Mutex
	// set is what QEMU got last; told says that it got something.
	set  access
	told bool
	// serial is how often a password was set.
	serial int
	// client is the address of the viewer that connected last, and main that of its main channel.
	client, main string
	problem      string
	*news
}

func newDisplay(s Settings, log *slog.Logger, n *news) *display {
	return &display{settings: s, log: log, news: n}
}

// spice is the SPICE server of the machine; nil if it has none.
func (s Settings) spice() *vmconfig.SPICE {
	if s.Machine.Display == nil {
		return nil
	}
	return s.Machine.Display.SPICE
}

// hasPassword returns whether the display is protected by a password.
func (s Settings) hasPassword() bool {
	spice := s.spice()
	return spice != nil && spice.Password
}

// screen returns the display for QEMU. It is served at all addresses of the pod if a password protects it, otherwise at
// its loopback address, which `kubectl port-forward` reaches. A pod whose address its guest has is left with no other.
func (s Settings) screen() *qemu.Display {
	spice := s.spice()
	if spice == nil {
		return nil
	}
	d := &qemu.Display{Outputs: s.Machine.Display.Outputs, Password: spice.Password, SPICE: &qemu.SPICE{
		Port: spice.Port, StreamingVideo: spice.StreamingVideo, USBRedirects: min(spice.USBRedirects, mostUSBRedirects),
	}}
	if spice.Password && !s.Machine.Has(vmconfig.NetworkPod) {
		d.SPICE.Address = everywhere()
	}
	return d
}

// everywhere returns the address of all interfaces, of IPv6 too if the pod has it.
func everywhere() netip.Addr {
	listener, err := net.Listen("tcp6", "[::]:0")
	if err != nil {
		return netip.IPv4Unspecified()
	}
	_ = listener.Close()
	return netip.IPv6Unspecified()
}

// begin sets the password with which a machine starts. Until one is set, the display is locked.
func (d *display) begin(ctx context.Context, monitor *qmp.Client) {
	d.note(func() { d.set, d.told, d.serial, d.client, d.main, d.problem = access{}, false, 0, "", "", "" })
	if d.settings.hasPassword() {
		d.apply(ctx, monitor)
	}
}

// run follows the Secret, and who is connected, until the context ends.
func (d *display) run(ctx context.Context, monitor func() *qmp.Client) {
	if d.settings.spice() == nil {
		return
	}
	ticker := time.NewTicker(readAccessEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		d.session(ctx, monitor(), ticker.C)
	}
}

// session works with one connection to the monitor.
func (d *display) session(ctx context.Context, monitor *qmp.Client, tick <-chan time.Time) {
	events := monitor.Subscribe(qmp.EventSPICEInitialized, qmp.EventSPICEDisconnected)
	defer events.Close()
	d.recall(ctx, monitor)
	incoming := events.Events()
	for {
		select {
		case <-ctx.Done():
			return
		case <-monitor.Done():
			select {
			case <-ctx.Done():
			case <-tick: // until the keeper has another connection
			}
			return
		case e, ok := <-incoming:
			if !ok {
				incoming = nil // the connection ends
				continue
			}
			d.see(e)
		case <-tick:
			if d.settings.hasPassword() {
				d.apply(ctx, monitor)
			}
		}
	}
}

// apply tells QEMU what the Secret says, if that is something else than before. A Secret that is not valid locks the
// display.
func (d *display) apply(ctx context.Context, monitor *qmp.Client) {
	wanted, err := readAccess(d.settings.Display)
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	d.mu.Lock()
	same := d.told && d.set == wanted && d.problem == problem
	locked := err != nil && !d.told
	d.mu.Unlock()
	if same {
		return
	}
	if err != nil {
		d.log.Warn("The display is locked", "reason", problem)
	}
	if !locked {
		if err = setAccess(ctx, monitor, wanted); err != nil {
			d.refused(ctx, monitor, err)
			return // the next tick tries again
		}
	}
	d.note(func() {
		d.set, d.told, d.problem = wanted, true, problem
		if wanted.password != "" {
			d.serial++
		}
	})
}

// refused locks the display as far as QEMU lets it, so that the previous password does not stay valid.
func (d *display) refused(ctx context.Context, monitor *qmp.Client, refusal error) {
	problem := "QEMU refuses the password of the display: " + refusal.Error()
	if err := setAccess(ctx, monitor, access{}); err != nil {
		problem += "; the previous password may still be valid"
	}
	d.mu.Lock()
	known := d.problem == problem
	d.mu.Unlock()
	if !known {
		d.log.Error("The password of the display could not be set", "error", refusal)
		d.note(func() { d.set, d.told, d.problem = access{}, true, problem })
	}
}

// setAccess sets a password. The zero access becomes a random password that has expired.
func setAccess(ctx context.Context, monitor *qmp.Client, a access) error {
	if a.password == "" {
		a = access{rand.Text(), expiresNow}
	}
	return monitor.SetPassword(ctx, "spice", a.password, a.expiry)
}

// see notes who is connected.
func (d *display) see(e qmp.Event) {
	var channel qmp.SPICEChannel
	if e.Decode(&channel) != nil {
		return
	}
	address := net.JoinHostPort(channel.Client.Host, channel.Client.Port)
	switch {
	case e.Name == qmp.EventSPICEInitialized && channel.Client.Type == qmp.SPICEMain:
		d.note(func() { d.client, d.main = channel.Client.Host, address })
	case e.Name == qmp.EventSPICEDisconnected && address == d.main: // others may not even have the password
		d.note(func() { d.client, d.main = "", "" })
	}
}

// recall finds out who is connected, because events of the connection of before may be lost.
func (d *display) recall(ctx context.Context, monitor *qmp.Client) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	channels, err := monitor.SPICEChannels(ctx)
	if err != nil {
		return
	}
	var client, main string
	for _, c := range channels {
		if c.Type == qmp.SPICEMain {
			client, main = c.Host, net.JoinHostPort(c.Host, c.Port)
		}
	}
	if main != d.main {
		d.note(func() { d.client, d.main = client, main })
	}
}

func (d *display) note(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
	d.tell()
}

// report adds what is known to a report.
func (d *display) report(r *vmconfig.Report) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.settings.spice() == nil {
		return
	}
	r.Display = &vmconfig.DisplayReport{Serial: -1, Client: d.client}
	if d.settings.hasPassword() {
		r.Display.Serial = d.serial
	}
	r.AddProblem(vmconfig.PartDisplay, d.problem)
}
