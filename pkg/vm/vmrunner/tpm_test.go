package vmrunner

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// TestTPMIsAnotherProcess that has one end of a connection whose other end QEMU gets. The test has a program in place of
// swtpm, which says what it was started with.
func TestTPMIsAnotherProcess(t *testing.T) {
	s := example(t)
	s.Machine.TPM = true
	t.Setenv("PATH", t.TempDir())
	err := prepare(t, s, func(ctx context.Context, p *preparation) error { return p.startTPM(ctx) })
	expectReason(t, err, keeper.ReasonFirmwareMissing, "swtpm", "spec.vm.useTpm")

	directory := t.TempDir()
	said := filepath.Join(directory, "said")
	write(t, filepath.Join(directory, "swtpm"), "#!/bin/sh\necho \"$*\" >"+said+"\nexec cat <&3\n")
	if err := os.Chmod(filepath.Join(directory, "swtpm"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", directory+":/usr/bin:/bin")
	err = prepare(t, s, func(ctx context.Context, p *preparation) error {
		err := errors.Join(p.lockDisks(ctx), p.startTPM(ctx))
		if err == nil && p.tpmDescriptor < keeper.FirstDescriptor {
			t.Errorf("QEMU's end has the number %d", p.tpmDescriptor)
		}
		var text []byte
		for began := time.Now(); !bytes.HasSuffix(text, []byte("\n")) && time.Since(began) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
			text, _ = os.ReadFile(said) // it may not be there yet
		}
		if want := "socket --tpm2 --tpmstate dir=" + s.Data + "/tpm,mode=0600 --ctrl type=unixio,clientfd=3 --terminate\n"; string(text) != want {
			t.Errorf("it was started with %q, want %q", text, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(s.Data, "tpm"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the state is in %v, %v", info, err)
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(s.Data, "tpm")), os.Symlink("/etc", filepath.Join(s.Data, "tpm"))); err != nil {
		t.Fatal(err)
	}
	err = prepare(t, s, func(ctx context.Context, p *preparation) error { return p.startTPM(ctx) })
	expectReason(t, err, keeper.ReasonDiskFailed, "no directory")
}
