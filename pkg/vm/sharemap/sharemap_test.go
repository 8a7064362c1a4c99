package sharemap

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const user = 64055

func attribute(t *testing.T, path, name string) uint32 {
	t.Helper()
	value := make([]byte, 8)
	n, err := unix.Lgetxattr(path, name, value)
	if err != nil {
		t.Errorf("%s of %s: %v", name, path, err)
		return 0
	}
	if n == 8 {
		return uint32(binary.LittleEndian.Uint64(value))
	}
	return binary.LittleEndian.Uint32(value)
}

// share is a directory as an earlier machine left it, whose QEMU was root.
func share(t *testing.T) Share {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root makes files of others")
	}
	directory := t.TempDir()
	at := func(name string) string { return filepath.Join(directory, name) }
	err := errors.Join(
		os.MkdirAll(at("data/member"), 0o700), os.WriteFile(at("data/member/db"), []byte("of etcd"), 0o640), os.Chown(at("data/member/db"), 232, 233),
		os.WriteFile(at("setuid"), nil, 0o755), os.Chmod(at("setuid"), 0o755|fs.ModeSetuid),
		os.Symlink("/etc/shadow", at("link")), unix.Mkfifo(at("pipe"), 0o622), unix.Mknod(at("device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))),
		os.WriteFile(at(".lock"), nil, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	s := Share{Directory: directory, User: user, Except: []string{".lock"}}
	root, err := os.OpenRoot(directory)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := supported(root); errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	return s
}

func TestShareOfBeforeIsReadableForQEMU(t *testing.T) {
	shadow, err := os.Stat("/etc/shadow")
	if err != nil {
		t.Skip(err)
	}
	s := share(t)
	if err := s.Convert(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct{ owner, group, mode uint32 }{
		".":              {0, 0, unix.S_IFDIR | 0o755},
		"data":           {0, 0, unix.S_IFDIR | 0o700},
		"data/member/db": {232, 233, unix.S_IFREG | 0o640},
		"setuid":         {0, 0, unix.S_IFREG | unix.S_ISUID | 0o755},
		"link":           {0, 0, unix.S_IFLNK | 0o777},
		"pipe":           {0, 0, unix.S_IFIFO | 0o622&^0o022},
		"device":         {0, 0, unix.S_IFCHR | 0o600},
	} {
		path := filepath.Join(s.Directory, name)
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		mode := fs.FileMode(modeOfFile)
		if info.IsDir() {
			mode = modeOfDirectory | fs.ModeDir
		}
		if info.Mode() != mode || info.Sys().(*syscall.Stat_t).Uid != user {
			t.Errorf("%s is %s of %d on the host", name, info.Mode(), info.Sys().(*syscall.Stat_t).Uid)
		}
		owner, group, seen := attribute(t, path, attributeUser), attribute(t, path, attributeGroup), attribute(t, path, attributeMode)
		if owner != want.owner || group != want.group || seen != want.mode && name != "." {
			t.Errorf("the guest sees %s as %o of %d:%d, want %o of %d:%d", name, seen, owner, group, want.mode, want.owner, want.group)
		}
	}
	if target, err := os.ReadFile(filepath.Join(s.Directory, "link")); err != nil || string(target) != "/etc/shadow" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	if now, err := os.Stat("/etc/shadow"); err != nil || now.Mode() != shadow.Mode() || now.Sys().(*syscall.Stat_t).Uid != shadow.Sys().(*syscall.Stat_t).Uid {
		t.Errorf("the host's file was changed: %v, %v", now, err)
	}
	if device := attribute(t, filepath.Join(s.Directory, "device"), attributeDevice); device != uint32(unix.Mkdev(1, 3)) {
		t.Errorf("the device is %d", device)
	}
	if info, err := os.Lstat(filepath.Join(s.Directory, ".lock")); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the runner's own file was given away: %v", err)
	}
}

// TestConvertedShareStaysAsItIs: the attributes of a guest's files are not taken from the host a second time.
func TestConvertedShareStaysAsItIs(t *testing.T) {
	s := share(t)
	if err := s.Convert(); err != nil {
		t.Fatal(err)
	}
	late := filepath.Join(s.Directory, "late")
	if err := os.WriteFile(late, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Convert(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(late); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("every file was checked: %v", err)
	}
	s.Whole = true
	if err := s.Convert(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(late); err != nil || info.Sys().(*syscall.Stat_t).Uid != user {
		t.Errorf("what others wrote was not converted: %v", err)
	}
	if mode := attribute(t, filepath.Join(s.Directory, "data/member/db"), attributeMode); mode != unix.S_IFREG|0o640 {
		t.Errorf("what was converted has the mode %o now", mode)
	}
}

func TestInterruptedConversionGoesOn(t *testing.T) {
	s := share(t)
	if err := s.Convert(); err != nil {
		t.Fatal(err)
	}
	// This is the state if it was interrupted before it converted one file, and the directory.
	db := filepath.Join(s.Directory, "data/member/db")
	if err := errors.Join(os.Chown(db, 0, 0), os.Chown(s.Directory, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if err := s.Convert(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{db, s.Directory} {
		if info, err := os.Stat(path); err != nil || info.Sys().(*syscall.Stat_t).Uid != user {
			t.Errorf("%s was left: %v", path, err)
		}
	}
}

func TestMissingShare(t *testing.T) {
	if err := (Share{Directory: filepath.Join(t.TempDir(), "missing"), User: user}).Convert(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
