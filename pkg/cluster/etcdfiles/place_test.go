package etcdfiles

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

const testToken = "restored0123456789ab"

// rootOf creates what `etcdutl snapshot restore` creates.
func rootOf(t *testing.T, content string) string {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, Data, "member", "snap", "db"), content)
	return root
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// inImage reads a file from an image with a file system.
func inImage(t *testing.T, image, path string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "debugfs", "-R", "cat "+path, image).Output()
	if err != nil {
		t.Fatalf("reading %s of %s: %v", path, image, err)
	}
	return strings.TrimSpace(string(output))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestSnapshotOnADisk covers every point at which an earlier Job may have been interrupted: the result is the snapshot,
// and the previous data is kept beside it.
func TestSnapshotOnADisk(t *testing.T) {
	const size = 64 << 20
	for name, until := range map[string]func(t *testing.T, volume string){
		"nothing was done": func(t *testing.T, volume string) { write(t, filepath.Join(volume, Image), "the old disk") },
		"a part of the new disk was made": func(t *testing.T, volume string) {
			write(t, filepath.Join(volume, Image), "the old disk")
			write(t, filepath.Join(volume, Image+placing), "half")
		},
		"the old disk was put aside": func(t *testing.T, volume string) {
			write(t, filepath.Join(volume, Image+before+testToken), "the old disk")
			write(t, filepath.Join(volume, Image+placing), "whole")
		},
		"the new disk was put in its place": func(t *testing.T, volume string) {
			write(t, filepath.Join(volume, Image+before+testToken), "the old disk")
			write(t, filepath.Join(volume, Image), "a new disk that was never used")
		},
		"an older snapshot was restored before": func(t *testing.T, volume string) {
			write(t, filepath.Join(volume, Image), "the old disk")
			write(t, filepath.Join(volume, Image+before+"restored999999999999"), "a much older one")
			write(t, filepath.Join(volume, Mark), "restored999999999999\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			volume := t.TempDir()
			until(t, volume)
			p := Placement{Volume: volume, Root: rootOf(t, "of the snapshot"), Token: testToken, DiskSize: size}
			if err := p.Place(t.Context()); err != nil {
				t.Fatal(err)
			}
			image := filepath.Join(volume, Image)
			if got := inImage(t, image, Data+"/member/snap/db"); got != "of the snapshot" {
				t.Errorf("the disk holds %q", got)
			}
			if got := inImage(t, image, TokenFile); got != testToken {
				t.Errorf("the disk was made with the token %q", got)
			}
			if old, err := os.ReadFile(image + before + testToken); err != nil || string(old) != "the old disk" {
				t.Errorf("beside it stands %q, %v", old, err)
			}
			if exists(image + placing) {
				t.Error("something is left that is not needed")
			}
			usedIsKept(t, p, image)
		})
	}
}

// usedIsKept: once the snapshot is placed, a late Job does nothing, because the machine may have started.
func usedIsKept(t *testing.T, p Placement, path string) {
	t.Helper()
	write(t, path, "used")
	if err := p.Place(t.Context()); err != nil {
		t.Fatal(err)
	}
	if used, err := os.ReadFile(path); err != nil || string(used) != "used" {
		t.Errorf("what the machine has written since is %q, %v", used, err)
	}
}

// TestWhatWasBeforeStaysForAWhile: unfinished restores do not remove what a machine used last.
func TestWhatWasBeforeStaysForAWhile(t *testing.T) {
	volume := t.TempDir()
	write(t, filepath.Join(volume, Image), "used")
	for n := range kept + 1 {
		p := Placement{Volume: volume, Root: rootOf(t, "of the snapshot"), Token: fmt.Sprintf("restored%d", n), DiskSize: 16 << 20}
		if err := p.Place(t.Context()); err != nil {
			t.Fatal(err)
		}
		if used, err := os.ReadFile(filepath.Join(volume, Image+before+"restored0")); n < kept && (err != nil || string(used) != "used") {
			t.Errorf("after %d restores what was used before is %q, %v", n+1, used, err)
		}
	}
	if all, err := filepath.Glob(filepath.Join(volume, Image+before+"*")); err != nil || len(all) != kept {
		t.Errorf("%v stay, want %d; err %v", all, kept, err)
	}
}

func TestSnapshotOnAnEmptyVolume(t *testing.T) {
	volume := t.TempDir()
	p := Placement{Volume: volume, Root: rootOf(t, "of the snapshot"), Token: testToken, DiskSize: 64 << 20}
	if err := p.Place(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := inImage(t, filepath.Join(volume, Image), Data+"/member/snap/db"); got != "of the snapshot" {
		t.Errorf("the disk holds %q", got)
	}
}

// TestSnapshotInADirectory is the same for data that the guest shares.
func TestSnapshotInADirectory(t *testing.T) {
	for name, until := range map[string]func(t *testing.T, volume string){
		"nothing was done":           func(t *testing.T, volume string) { write(t, filepath.Join(volume, Data, "old"), "") },
		"the old data was put aside": func(t *testing.T, volume string) { write(t, filepath.Join(volume, Data+before+testToken, "old"), "") },
		"the new data is in its place": func(t *testing.T, volume string) {
			write(t, filepath.Join(volume, Data+before+testToken, "old"), "")
			write(t, filepath.Join(volume, Data, "unused"), "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			volume := t.TempDir()
			write(t, filepath.Join(volume, TokenFile), "founding")
			until(t, volume)
			p := Placement{Volume: volume, Root: rootOf(t, "of the snapshot"), Token: testToken, DiskSize: 64 << 20}
			if err := p.Place(t.Context()); err != nil {
				t.Fatal(err)
			}
			db, err := os.ReadFile(filepath.Join(volume, Data, "member", "snap", "db"))
			if err != nil || string(db) != "of the snapshot" {
				t.Errorf("the data is %q, %v", db, err)
			}
			if info, err := os.Stat(filepath.Join(volume, Data)); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("etcd refuses a directory with the mode %s, %v", info.Mode(), err)
			}
			token, err := os.ReadFile(filepath.Join(volume, TokenFile))
			if err != nil || strings.TrimSpace(string(token)) != testToken {
				t.Errorf("the token is %q, %v", token, err)
			}
			if !exists(filepath.Join(volume, Data+before+testToken, "old")) || exists(filepath.Join(volume, Data, "unused")) {
				t.Error("the old data is not beside the new one")
			}
			usedIsKept(t, p, filepath.Join(volume, Data, "member", "snap", "db"))
		})
	}
}

// TestNothingIsPlacedUnderAMachine: a machine has the lock.
func TestNothingIsPlacedUnderAMachine(t *testing.T) {
	volume := t.TempDir()
	write(t, filepath.Join(volume, Image), "in use")
	lock, err := disk.Acquire(volume)
	if err != nil {
		t.Fatal(err)
	}
	p := Placement{Volume: volume, Root: rootOf(t, "of the snapshot"), Token: testToken, DiskSize: 64 << 20}
	if err := p.Place(t.Context()); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("it ended with %v", err)
	}
	if used, err := os.ReadFile(filepath.Join(volume, Image)); err != nil || string(used) != "in use" {
		t.Errorf("the disk is %q, %v", used, err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsPlacedOfNothing(t *testing.T) {
	volume := t.TempDir()
	write(t, filepath.Join(volume, Image), "unchanged")
	p := Placement{Volume: volume, Root: t.TempDir(), Token: testToken, DiskSize: 64 << 20}
	if err := p.Place(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it ended with %v", err)
	}
	if kept, err := os.ReadFile(filepath.Join(volume, Image)); err != nil || string(kept) != "unchanged" {
		t.Errorf("the disk is %q, %v", kept, err)
	}
}
