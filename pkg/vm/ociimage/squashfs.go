package ociimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// packTime is how long the packer may take.
const packTime = 30 * time.Minute

// packer is the program that makes a squashfs of a tar archive (squashfs-tools 4.5 and newer). sqfstar, which is another name
// of it, takes no level.
const packer = "mksquashfs"

// level is zstd's, of 1 to 22. The default, 15, takes six times as long for a file that is 5 % smaller.
const level = "6"

// Pack writes the file system of layers to a new squashfs file. The file is the same whenever the layers are and the
// program is: times and the owner of the root are fixed. Only the root's attributes are not those of the image.
//
// The error is a MalformedError if the program cannot read the archive, and has unix.ENOSPC if the disk has no room.
func Pack(ctx context.Context, layers []Layer, limits Limits, file string) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, packTime, fmt.Errorf("%s takes longer than %s", packer, packTime))
	defer cancel()
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	command := exec.CommandContext(ctx, packer, "-", file, "-tar", "-noappend", "-quiet", "-no-progress", "-all-time", "0", "-mkfs-time", "0",
		"-root-mode", "0755", "-root-uid", "0", "-root-gid", "0", "-comp", "zstd", "-Xcompression-level", level)
	command.Stdin, command.Stdout, command.Stderr = from, &said, &said
	if err := command.Start(); err != nil {
		return errors.Join(fmt.Errorf("starting %s: %w", packer, err), from.Close(), to.Close())
	}
	err = errors.Join(from.Close(), feed(ctx, layers, limits, to))
	if err != nil {
		cancel() // a part of an archive is a file system, too
	}
	ended := command.Wait()
	if err == nil && ended != nil {
		err = packError(ctx, ended, said.String())
	}
	if err != nil {
		return errors.Join(err, remove(file))
	}
	return nil
}

// feed writes the archive, and closes the pipe.
func feed(ctx context.Context, layers []Layer, limits Limits, to io.WriteCloser) error {
	err := Flatten(ctx, layers, limits, to)
	if errors.Is(err, unix.EPIPE) {
		err = nil // the program has ended, and says why
	}
	return errors.Join(err, to.Close())
}

// packError returns why the program failed. One that was killed by a signal has crashed over the archive.
func packError(ctx context.Context, ended error, said string) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	said = strings.TrimSpace(said)
	if strings.Contains(said, unix.ENOSPC.Error()) || strings.Contains(said, "No space left") {
		return fmt.Errorf("packing the image: %w: %s", unix.ENOSPC, said)
	}
	return malformed("%s: %v: %s", packer, ended, said)
}

func remove(file string) error {
	if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
