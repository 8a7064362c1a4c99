package etcdfiles

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ownfile"
)

// A guest that shares the directory of etcd's data as root can create anything in it, and a volume may already contain
// files. foreign is what may be placed under a name that the runner, or the Job of a restore, uses; host is a file of
// the host.
var foreign = map[string]func(host, path string) error{
	"a symbolic link": os.Symlink,
	"a dangling link": func(host, path string) error { return os.Symlink(host+".missing", path) },
	"a hard link":     os.Link,
	"a directory":     func(_, path string) error { return os.Mkdir(path, 0o700) },
	"a device":        func(_, path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) },
	"a named pipe":    func(_, path string) error { return unix.Mkfifo(path, 0o600) },
}

const ofTheHost = "a file of the host"

// place creates a volume with something foreign under a name.
func place(t *testing.T, name string, what func(host, path string) error) (volume, host string) {
	t.Helper()
	directory := t.TempDir()
	volume, host = filepath.Join(directory, "volume"), filepath.Join(directory, "host")
	if err := errors.Join(os.Mkdir(volume, 0o700), os.WriteFile(host, []byte(ofTheHost), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := what(host, filepath.Join(volume, name)); errors.Is(err, fs.ErrPermission) {
		t.Skip("it takes root to place this: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return volume, host
}

func untouched(t *testing.T, host string) {
	t.Helper()
	if text, err := os.ReadFile(host); err != nil || string(text) != ofTheHost {
		t.Errorf("the file of the host is %q, %v", text, err)
	}
	if _, err := os.Lstat(host + ".missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file of the host was made: %v", err)
	}
}

// TestForeignDiskIsNeverUsed: a link in place of etcd's disk would give a guest any file of the host as a writable
// disk.
func TestForeignDiskIsNeverUsed(t *testing.T) {
	for _, name := range []string{Image, Image + before + testToken} {
		for what, put := range foreign {
			t.Run(what+" as "+name, func(t *testing.T) {
				volume, host := place(t, name, put)
				if store, err := Find(volume, true); !errors.Is(err, ownfile.ErrForeign) || !strings.Contains(err.Error(), "has to be removed") {
					t.Errorf("found %+v, %v", store, err)
				}
				if name == Image {
					if err := disk.Create(filepath.Join(volume, name), 1<<20); !errors.Is(err, ownfile.ErrForeign) {
						t.Errorf("made it a disk: %v", err)
					}
				}
				p := Placement{Volume: volume, Root: rootOf(t, "of the snapshot"), Token: testToken, DiskSize: 16 << 20}
				if err := p.Place(t.Context()); !errors.Is(err, ownfile.ErrForeign) {
					t.Errorf("placed a snapshot: %v", err)
				}
				untouched(t, host)
			})
		}
	}
}

// TestSnapshotIsPlacedOverForeignThings: names that only a Job uses are overwritten, and nothing is written through
// what is there.
func TestSnapshotIsPlacedOverForeignThings(t *testing.T) {
	for _, name := range []string{
		Image + placing, Mark, Mark + placing, TokenFile, TokenFile + placing, Data + placing, Data + before + "other", Data + before + testToken,
	} {
		for what, put := range foreign {
			t.Run(what+" as "+name, func(t *testing.T) {
				volume, host := place(t, name, put)
				p := Placement{Volume: volume, Root: rootOf(t, "of the snapshot"), Token: testToken, DiskSize: 16 << 20}
				if strings.HasPrefix(name, Data) {
					write(t, filepath.Join(volume, Data, "old"), "")
				}
				if err := p.Place(t.Context()); err != nil {
					t.Fatal(err)
				}
				untouched(t, host)
				if text, err := ownfile.Read(filepath.Join(volume, Mark), maxToken); err != nil || strings.TrimSpace(string(text)) != testToken {
					t.Errorf("the mark is %q, %v", text, err)
				}
				if !p.done() {
					t.Error("it would be placed again")
				}
			})
		}
	}
}

// TestLockThroughForeignThingsIsRefused: nothing is truncated or created through the lock file.
func TestLockThroughForeignThingsIsRefused(t *testing.T) {
	for what, put := range foreign {
		t.Run(what, func(t *testing.T) {
			volume, host := place(t, disk.LockName, put)
			p := Placement{Volume: volume, Root: rootOf(t, "of the snapshot"), Token: testToken, DiskSize: 16 << 20}
			if err := p.Place(t.Context()); !errors.Is(err, ownfile.ErrForeign) {
				t.Errorf("it ended with %v", err)
			}
			untouched(t, host)
		})
	}
}

// TestForgedMarkProvesNothing: text behind a link does not prove that the operator placed a snapshot.
func TestForgedMarkProvesNothing(t *testing.T) {
	for what, put := range map[string]func(string, string) error{"a symbolic link": os.Symlink, "a hard link": os.Link} {
		t.Run(what, func(t *testing.T) {
			volume, host := t.TempDir(), filepath.Join(t.TempDir(), "host")
			write(t, host, testToken+"\n")
			if err := put(host, filepath.Join(volume, Mark)); err != nil {
				t.Skip(err)
			}
			if (Placement{Volume: volume, Token: testToken}).done() {
				t.Error("a forged mark counts")
			}
		})
	}
}
