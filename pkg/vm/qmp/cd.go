package qmp

import (
	"context"
	"errors"
	"fmt"
)

// Drive is the state of a drive with a tray.
type Drive struct {
	// File is the medium; empty if there is none. QEMU may describe a medium that is not a plain file as json:{…}.
	File string
	// TrayOpen and Locked are the state of the tray; a guest locks it while it uses the medium.
	TrayOpen, Locked bool
}

// Drive queries the state of the drive with the device id.
func (c *Client) Drive(ctx context.Context, id string) (Drive, error) {
	var drives []struct {
		Device   string `json:"qdev"`
		TrayOpen bool   `json:"tray_open"`
		Locked   bool   `json:"locked"`
		Inserted struct {
			File string `json:"file"`
		} `json:"inserted"`
	}
	const query = "query-block"
	if err := c.Execute(ctx, query, nil, &drives); err != nil {
		return Drive{}, err
	}
	for _, d := range drives {
		if d.Device == id || d.Device == peripherals+id {
			return Drive{File: d.Inserted.File, TrayOpen: d.TrayOpen, Locked: d.Locked}, nil
		}
	}
	return Drive{}, &CommandError{Command: query, Class: ClassDeviceNotFound, Description: "there is no drive " + id}
}

// OpenTray opens the tray of the drive. If the tray is locked, the guest is asked to open it, and the CommandError says
// so; EventTrayMoved reports when it has.
func (c *Client) OpenTray(ctx context.Context, id string) error {
	return c.Execute(ctx, "blockdev-open-tray", arguments{"id": id}, nil)
}

// CloseTray closes the tray of the drive.
func (c *Client) CloseTray(ctx context.Context, id string) error {
	return c.Execute(ctx, "blockdev-close-tray", arguments{"id": id}, nil)
}

// ChangeMedium opens the tray of the drive, inserts a raw image read-only and closes it. If the image cannot be opened,
// nothing changes.
func (c *Client) ChangeMedium(ctx context.Context, id, filename string) error {
	return c.Execute(ctx, "blockdev-change-medium", arguments{
		"id": id, "filename": filename, "format": "raw", "read-only-mode": "read-only",
	}, nil)
}

// RemoveMedium removes the medium from the open tray of the drive.
func (c *Client) RemoveMedium(ctx context.Context, id string) error {
	return c.Execute(ctx, "blockdev-remove-medium", arguments{"id": id}, nil)
}

// ChangeCD inserts a raw image into the drive with the device id and returns when it is there and the tray is closed.
// If the guest has locked the tray, it is asked to open it: the error is ErrGuestSilent if it does not. If the image
// cannot be opened, the old one stays in the drive.
func (c *Client) ChangeCD(ctx context.Context, id, filename string) error {
	err := c.exclusive(ctx, func() error {
		opened, err := c.unlockTray(ctx, id)
		if err != nil {
			return err
		}
		if err := c.ChangeMedium(ctx, id, filename); err != nil {
			if opened {
				err = errors.Join(err, c.CloseTray(ctx, id))
			}
			return err
		}
		return c.confirmDrive(ctx, id, func(d Drive) bool { return d.File != "" && !d.TrayOpen })
	})
	if err != nil {
		return fmt.Errorf("changing the medium of %s: %w", id, err)
	}
	return nil
}

// EjectCD removes the medium from the drive with the device id and returns when there is none and the tray is closed.
// For a locked tray see ChangeCD.
func (c *Client) EjectCD(ctx context.Context, id string) error {
	err := c.exclusive(ctx, func() error {
		if _, err := c.unlockTray(ctx, id); err != nil {
			return err
		}
		for _, step := range []func(context.Context, string) error{c.OpenTray, c.RemoveMedium, c.CloseTray} {
			if err := step(ctx, id); err != nil {
				return err
			}
		}
		return c.confirmDrive(ctx, id, func(d Drive) bool { return d.File == "" && !d.TrayOpen })
	})
	if err != nil {
		return fmt.Errorf("ejecting the medium of %s: %w", id, err)
	}
	return nil
}

// unlockTray makes the guest open the tray if it has locked it.
func (c *Client) unlockTray(ctx context.Context, id string) (opened bool, err error) {
	events := c.Subscribe(EventTrayMoved)
	defer events.Close()
	drive, err := c.Drive(ctx, id)
	if err != nil || !drive.Locked || drive.TrayOpen {
		return false, err
	}
	var locked *CommandError
	if err := c.OpenTray(ctx, id); err != nil && !errors.As(err, &locked) {
		return false, err
	}
	isOpen := func() (bool, error) {
		drive, err := c.Drive(ctx, id)
		return drive.TrayOpen, err
	}
	if err := c.await(ctx, events, c.patience.Tray, isOpen, nil); err != nil {
		return false, fmt.Errorf("waiting for the locked tray: %w", err)
	}
	return true, nil
}

func (c *Client) confirmDrive(ctx context.Context, id string, isRight func(Drive) bool) error {
	drive, err := c.Drive(ctx, id)
	if err == nil && !isRight(drive) {
		err = fmt.Errorf("%w: %+v", ErrUnobserved, drive)
	}
	return err
}
