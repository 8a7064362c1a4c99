package etcdfiles

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

// TestRetiredData covers the points at which an earlier Job may have been interrupted, and what may be in place of the
// directory.
func TestRetiredData(t *testing.T) {
	const before, after, file = "k8s-master-m0aaa", "retired-20261122T060000Z-k8s-master-m0aaa", "etcd.img"
	for name, test := range map[string]struct {
		prepare func(t *testing.T, directory string)
		// stays says that something has the former name in the end, and renamed that something has the other one.
		stays, renamed bool
	}{
		"data":    {func(t *testing.T, d string) { write(t, filepath.Join(d, before, file), "data") }, false, true},
		"nothing": {func(*testing.T, string) {}, false, false},
		"it was renamed": {func(t *testing.T, d string) {
			write(t, filepath.Join(d, after, file), "data")
		}, false, true},
		"it was renamed, and other data came since": {func(t *testing.T, d string) {
			write(t, filepath.Join(d, after, file), "data")
			write(t, filepath.Join(d, before, file), "other")
		}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			test.prepare(t, directory)
			r := Retired{Directory: directory, Name: before, As: after}
			for range 2 {
				if err := r.Rename(); err != nil {
					t.Fatal(err)
				}
				if stays, renamed := exists(filepath.Join(directory, before)), exists(filepath.Join(directory, after, file)); stays != test.stays || renamed != test.renamed {
					t.Fatalf("the former name is there: %t, the other one: %t; want %t, %t", stays, renamed, test.stays, test.renamed)
				}
			}
			for range 2 {
				if err := r.Remove(); err != nil {
					t.Fatal(err)
				}
				if exists(filepath.Join(directory, after)) || exists(filepath.Join(directory, before)) != test.stays {
					t.Fatal("not the other name alone is gone")
				}
			}
		})
	}
}

// TestDataOfAMachineIsNotRenamed covers a machine that still runs.
func TestDataOfAMachineIsNotRenamed(t *testing.T) {
	directory := t.TempDir()
	volume := filepath.Join(directory, "k8s-master-m0aaa")
	write(t, filepath.Join(volume, "etcd.img"), "data")
	machine, err := disk.Acquire(volume)
	if err != nil {
		t.Fatal(err)
	}
	r := Retired{Directory: directory, Name: "k8s-master-m0aaa", As: "retired-20261122T060000Z-k8s-master-m0aaa"}
	if err := r.Rename(); !errors.Is(err, disk.ErrLocked) || !exists(volume) {
		t.Fatalf("%v, want that it is locked", err)
	}
	if err := errors.Join(machine.Close(), r.Rename()); err != nil || exists(volume) {
		t.Fatalf("it is not renamed once the machine has ended: %v", err)
	}
}

// TestNoLinkIsFollowed: a guest that shares its directory may have created a link.
func TestNoLinkIsFollowed(t *testing.T) {
	directory, outside := t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "precious"), "of the host")
	volume := filepath.Join(directory, "k8s-master-m0aaa")
	write(t, filepath.Join(volume, "data", "x"), "data")
	for _, link := range []string{"link", "data/link"} {
		if err := os.Symlink(outside, filepath.Join(volume, link)); err != nil {
			t.Fatal(err)
		}
	}
	r := Retired{Directory: directory, Name: "k8s-master-m0aaa", As: "retired-20261122T060000Z-k8s-master-m0aaa"}
	if err := errors.Join(r.Rename(), r.Remove()); err != nil {
		t.Fatal(err)
	}
	if !exists(filepath.Join(outside, "precious")) || exists(filepath.Join(directory, r.As)) {
		t.Error("a link was followed, or the directory is there")
	}
}
