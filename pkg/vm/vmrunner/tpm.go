package vmrunner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/jail"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// tpmState is the directory below Settings.Data with the state of the TPM, which is as precious as the disks: a guest may
// have sealed the keys of their encryption with it.
const tpmState = "tpm"

// startTPM starts swtpm, which emulates a TPM 2.0 beside QEMU: as QEMU's user, without capabilities and, where the runner
// may make mount namespaces, in a root directory that has only its state. It ends with its connection to QEMU.
func (p *preparation) startTPM(context.Context) error {
	if !p.settings.Machine.TPM {
		return nil
	}
	program, err := exec.LookPath("swtpm")
	if err != nil {
		return keeper.Failf(keeper.ReasonFirmwareMissing, "finding the TPM: %w; use an image of the runner that has it, or remove spec.vm.useTpm", err)
	}
	state, err := p.makeTPMState()
	if err != nil {
		return keeper.BecauseOfDisk(fmt.Errorf("making the directory for the TPM: %w", err))
	}
	ours, theirs, err := connected()
	if err != nil {
		return keeper.Because(keeper.ReasonInternal, err)
	}
	p.tpmDescriptor = p.Give(ours)
	command := exec.Command(program, "socket", "--tpm2", "--tpmstate", "dir="+state+",mode=0600", "--ctrl", fmt.Sprintf("type=unixio,clientfd=%d", keeper.FirstDescriptor), "--terminate")
	command.ExtraFiles = []*os.File{theirs}
	command.Stdout, command.Stderr = lineLogger(p.log.Info), lineLogger(p.log.Warn)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	wait, err := jail.Jail{
		User: p.Jail.User, Directory: filepath.Join(p.settings.Run, "tpm-root"), Paths: []jail.Path{{Name: state, Writable: true}}, Offline: true, Say: p.Jail.Say,
	}.Start(command)
	if err = errors.Join(err, theirs.Close()); err != nil {
		return keeper.Because(keeper.ReasonInternal, fmt.Errorf("starting %s: %w", program, err))
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := wait(); err != nil {
			p.log.Error("The TPM has ended", "error", err)
		}
	}()
	p.OnClose(func() error { return end(command.Process, ended) })
	return nil
}

// endTime is how long swtpm may take to end.
const endTime = 5 * time.Second

// end ends a process. It does not wait for one that hangs in the kernel, which would keep the runner from ending.
func end(process *os.Process, ended <-chan struct{}) error {
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		_ = process.Signal(signal) // it may have ended with QEMU
		select {
		case <-ended:
			return nil
		case <-time.After(endTime):
		}
	}
	return fmt.Errorf("the TPM, process %d, does not end", process.Pid)
}

// makeTPMState returns the directory for the TPM's state, which belongs to QEMU's user.
func (p *preparation) makeTPMState() (string, error) {
	path := filepath.Join(p.settings.Data, tpmState)
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is no directory", path)
	}
	if user := p.Jail.User; user != 0 {
		// The user has to get through to it, and sees nothing else there.
		if err := errors.Join(os.Chmod(p.settings.Data, 0o711), give(path, user)); err != nil { //nolint:gosec // G302: a directory
			return "", err
		}
	}
	return path, nil
}

// give gives a directory and the files in it to a user. It follows no link out of it.
func give(path string, user int) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	errs := []error{root.Lchown(".", user, user)}
	files, err := fs.ReadDir(root.FS(), ".")
	for _, file := range files {
		errs = append(errs, root.Lchown(file.Name(), user, user))
	}
	return errors.Join(append(errs, err, root.Close())...)
}

// connected returns the two ends of a connection.
func connected() (one, other *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting QEMU with the TPM: %w", err)
	}
	return os.NewFile(uintptr(pair[0]), "tpm"), os.NewFile(uintptr(pair[1]), "tpm"), nil
}

// lineLogger logs what a program writes.
type lineLogger func(text string, arguments ...any)

// Write logs the lines of p.
func (l lineLogger) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if line = strings.TrimSpace(line); line != "" {
			l("The TPM says", "text", line)
		}
	}
	return len(p), nil
}
