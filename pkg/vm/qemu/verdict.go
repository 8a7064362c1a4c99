package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// verdict is where a canary's result is kept: a file that is named after the host's boot and what was tried, and a lock
// beside it that is held while the canary runs.
type verdict struct {
	directory, boot, subject string
}

const verdictPrefix = "kvm-"

var bootPattern = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z-]*$`)

func (p Prover) verdict() (verdict, error) {
	boot := p.BootID
	if strings.HasPrefix(boot, "/") {
		content, err := os.ReadFile(boot)
		if err != nil {
			return verdict{}, err
		}
		boot = strings.TrimSpace(string(content))
	}
	if !bootPattern.MatchString(boot) {
		return verdict{}, fmt.Errorf("%q is not the id of a boot", boot)
	}
	subject, err := p.subject()
	return verdict{directory: p.Cache, boot: boot, subject: subject}, err
}

// subject is a digest of what a canary tries: the bytes of QEMU and of the kernel, because their names mean little in
// different containers, and how they are combined.
func (p Prover) subject() (string, error) {
	binary, err := exec.LookPath(p.Binary)
	if err != nil {
		return "", err
	}
	digest := sha256.New()
	for _, path := range []string{binary, p.Kernel} {
		one := sha256.New()
		if err := readInto(one, path); err != nil {
			return "", err
		}
		fmt.Fprintf(digest, "%x\n", one.Sum(nil))
	}
	fmt.Fprintf(digest, "%q %q", p.MachineType, p.CPUModel)
	return fmt.Sprintf("%.16x", digest.Sum(nil)), nil
}

func readInto(w io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // It was only read.
	_, err = io.Copy(w, file)
	return err
}

// remember returns the result of a canary since the host booted; if none was run yet, it runs one.
func (p Prover) remember(ctx context.Context) (Choice, error) {
	v, err := p.verdict()
	if err != nil {
		return Choice{}, fmt.Errorf("prove that KVM works: %w", err)
	}
	if choice, ok := v.read(); ok {
		return choice, nil
	}
	unlock, err := v.lock(ctx)
	switch {
	case ctx.Err() != nil:
		return Choice{}, fmt.Errorf("wait for a canary of another machine: %w", ctx.Err())
	case err != nil:
		return p.forget(ctx, err)
	}
	defer unlock()
	if choice, ok := v.read(); ok {
		return choice, nil
	}
	choice, err := p.sendCanary(ctx)
	if err != nil {
		return Choice{}, err
	}
	if err := v.write(choice); err != nil {
		choice.Reason += notKept(err)
	}
	return choice, nil
}

// forget runs a canary although its result cannot be kept: a slow start is better than none.
func (p Prover) forget(ctx context.Context, why error) (Choice, error) {
	choice, err := p.sendCanary(ctx)
	if err != nil {
		return Choice{}, err
	}
	choice.Reason += notKept(why)
	return choice, nil
}

func notKept(err error) string {
	return fmt.Sprintf(" This could not be kept for other machines: %s.", err)
}

func (v verdict) path(suffix string) string {
	return filepath.Join(v.directory, verdictPrefix+v.boot+"-"+v.subject+suffix)
}

// read returns what is kept. An invalid file counts as none.
func (v verdict) read() (Choice, bool) {
	content, err := os.ReadFile(v.path(".json"))
	if err != nil {
		return Choice{}, false
	}
	var choice Choice
	err = json.Unmarshal(content, &choice)
	return choice, err == nil && choice.Reason != "" && (choice.Accelerator == KVM || choice.Accelerator == TCG)
}

// write keeps a choice, either completely or not at all, and removes those of earlier boots.
func (v verdict) write(choice Choice) error {
	content, err := json.Marshal(choice)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(v.directory, verdictPrefix+v.boot+"-*.tmp")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	v.prune()
	return os.Rename(file.Name(), v.path(".json"))
}

// prune removes the files of earlier boots. Their locks are no longer held; files that cannot be removed are harmless.
func (v verdict) prune() {
	old, err := filepath.Glob(filepath.Join(v.directory, verdictPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range old {
		if !strings.HasPrefix(filepath.Base(path), verdictPrefix+v.boot+"-") {
			_ = os.Remove(path)
		}
	}
}

// lock waits until no other process holds the lock and returns a function that unlocks it. The kernel unlocks it if a
// process dies.
func (v verdict) lock(ctx context.Context) (func(), error) {
	if err := os.MkdirAll(v.directory, 0o750); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(v.path(".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	unlock := func() { _ = file.Close() }
	locked := make(chan error)
	go func() {
		err := flock(file) // It cannot be canceled; it ends when the holder does.
		select {
		case locked <- err:
		case <-ctx.Done():
			unlock()
		}
	}()
	select {
	case err := <-locked:
		if err != nil {
			unlock()
		}
		return unlock, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func flock(file *os.File) error {
	for {
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
