package qmp

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
)

// The names of the commands and the fields of arguments and results are QEMU's (QEMU: qapi/*.json).

// arguments are the arguments of a command by name.
type arguments map[string]any

// Status is the run state of a machine.
type Status struct {
	// Running says whether the CPUs run.
	Running bool `json:"running"`
	// Status is a RunState: prelaunch, running, paused, shutdown, guest-panicked, io-error …
	Status string `json:"status"`
}

// Status queries whether the CPUs run.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var status Status
	err := c.Execute(ctx, "query-status", nil, &status)
	return status, err
}

// Version is a release of QEMU.
type Version struct {
	QEMU struct {
		Major int `json:"major"`
		Minor int `json:"minor"`
		Micro int `json:"micro"`
	} `json:"qemu"`
	// Package is the distribution's name for its build.
	Package string `json:"package"`
}

// String returns the number, as in 7.2.22.
func (v Version) String() string {
	return fmt.Sprintf("%d.%d.%d", v.QEMU.Major, v.QEMU.Minor, v.QEMU.Micro)
}

// Version queries QEMU's release.
func (c *Client) Version(ctx context.Context) (Version, error) {
	var version Version
	err := c.Execute(ctx, "query-version", nil, &version)
	return version, err
}

// KVM reports whether the hardware runs the guest; otherwise it is emulated.
func (c *Client) KVM(ctx context.Context) (bool, error) {
	var kvm struct {
		Enabled bool `json:"enabled"`
	}
	err := c.Execute(ctx, "query-kvm", nil, &kvm)
	return kvm.Enabled, err
}

// Cont starts or resumes the CPUs.
func (c *Client) Cont(ctx context.Context) error { return c.Execute(ctx, "cont", nil, nil) }

// Stop pauses the CPUs.
func (c *Client) Stop(ctx context.Context) error { return c.Execute(ctx, "stop", nil, nil) }

// Writes returns the number of the guest's writes to all disks since QEMU started.
func (c *Client) Writes(ctx context.Context) (uint64, error) {
	var disks []struct {
		Stats struct {
			Writes uint64 `json:"wr_operations"`
		} `json:"stats"`
	}
	err := c.Execute(ctx, "query-blockstats", nil, &disks)
	var writes uint64
	for _, d := range disks {
		writes += d.Stats.Writes
	}
	return writes, err
}

// Powerdown presses the ACPI power button, which the event POWERDOWN confirms. The guest may ignore it; if it obeys,
// EventShutdown follows.
func (c *Client) Powerdown(ctx context.Context) error {
	return c.Execute(ctx, "system_powerdown", nil, nil)
}

// Reset resets the machine like a reset button; EventReset confirms it.
func (c *Client) Reset(ctx context.Context) error { return c.Execute(ctx, "system_reset", nil, nil) }

// Quit ends QEMU at once. QEMU may be gone before its reply is sent, so the end of the connection counts as success.
func (c *Client) Quit(ctx context.Context) error {
	if err := c.Err(); err != nil {
		return fmt.Errorf("executing quit: %w", err)
	}
	if err := c.Execute(ctx, "quit", nil, nil); !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

// SetBalloon tells the guest to shrink or grow to that many bytes and does not wait for it; a value above the machine's
// memory means all of it. It also works before the guest is started.
func (c *Client) SetBalloon(ctx context.Context, bytes int64) error {
	return c.Execute(ctx, "balloon", arguments{"value": bytes}, nil)
}

// Balloon queries how many bytes the guest has at the moment.
func (c *Client) Balloon(ctx context.Context) (int64, error) {
	var balloon struct {
		Actual int64 `json:"actual"`
	}
	err := c.Execute(ctx, "query-balloon", nil, &balloon)
	return balloon.Actual, err
}

// BlockResize tells the guest that a block node has a new size in bytes. A file grows to it; a device must already have
// it.
func (c *Client) BlockResize(ctx context.Context, node string, bytes int64) error {
	return c.Execute(ctx, "block_resize", arguments{"node-name": node, "size": bytes}, nil)
}

// SetPassword sets the password of a display and when it expires: "now", "never", "+<seconds>" or a unix time. protocol
// is spice or vnc. Both are always set, because a new password does not remove an earlier expiry.
func (c *Client) SetPassword(ctx context.Context, protocol, password, expiry string) error {
	err := c.Execute(ctx, "set_password", arguments{"protocol": protocol, "password": password}, nil)
	if err != nil {
		return err
	}
	return c.Execute(ctx, "expire_password", arguments{"protocol": protocol, "time": expiry}, nil)
}

// SPICEChannels queries the channels of the viewers that are connected.
func (c *Client) SPICEChannels(ctx context.Context) ([]SPICEClient, error) {
	var server struct {
		Channels []SPICEClient `json:"channels"`
	}
	err := c.Execute(ctx, "query-spice", nil, &server)
	return server.Channels, err
}

// MachineType queries the type of the machine, with its version: pc-q35-10.0.
func (c *Client) MachineType(ctx context.Context) (string, error) {
	var name string
	err := c.Execute(ctx, "qom-get", arguments{"path": "/machine", "property": "type"}, &name)
	return strings.TrimSuffix(name, "-machine"), err
}

// children lists the names below an object of QEMU's object model.
func (c *Client) children(ctx context.Context, parent string) ([]string, error) {
	var properties []struct{ Name, Type string }
	err := c.Execute(ctx, "qom-list", arguments{"path": parent}, &properties)
	var names []string
	for _, p := range properties {
		if isChild, _ := path.Match("child<*>", p.Type); isChild {
			names = append(names, p.Name)
		}
	}
	return names, err
}
