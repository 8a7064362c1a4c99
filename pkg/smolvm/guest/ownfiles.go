package guest

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
)

// bindOwnFiles mounts the files of /etc that belong to the machine and not to its image. They are in memory.
func bindOwnFiles(root *Root, config agentwire.Config) error {
	if err := mount("tmpfs", ownFiles, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return err
	}
	etc, err := root.directoryAt("/etc")
	if err != nil {
		return fmt.Errorf("the image's /etc: %w", err)
	}
	defer etc.Close() //nolint:errcheck // it was only read
	for name, text := range contents(config) {
		source := filepath.Join(ownFiles, name)
		if err := os.WriteFile(source, []byte(text), 0o644); err != nil { //nolint:gosec // everyone may read them
			return err
		}
		if err := bindFile(etc, name, source); err != nil {
			return fmt.Errorf("mounting /etc/%s: %w", name, err)
		}
	}
	return nil
}

// bindFile mounts a file at a name in a directory. What is there and no file, such as a link, is replaced.
func bindFile(parent *os.File, name, source string) error {
	at := int(parent.Fd())
	var there unix.Stat_t
	err := unix.Fstatat(at, name, &there, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && there.Mode&unix.S_IFMT != unix.S_IFREG {
		flags := 0
		if there.Mode&unix.S_IFMT == unix.S_IFDIR {
			flags = unix.AT_REMOVEDIR
		}
		if err := unix.Unlinkat(at, name, flags); err != nil {
			return err
		}
		err = unix.ENOENT
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	create := 0
	if err != nil {
		create = unix.O_CREAT | unix.O_EXCL
	}
	fd, err := unix.Openat(at, name, create|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	target := os.NewFile(uintptr(fd), name)
	defer target.Close() //nolint:errcheck // it was only opened
	return unix.Mount(source, self(target), "", unix.MS_BIND, "")
}

// contents returns the files of /etc by their names.
func contents(config agentwire.Config) map[string]string {
	hosts := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	own, servers := netip.AddrFrom4([4]byte{127, 0, 1, 1}), ""
	if n := config.Network; n != nil {
		own, servers = n.Address.Addr(), fmt.Sprintf("nameserver %s\n", n.DNS)
	}
	if config.Name != "" {
		hosts += fmt.Sprintf("%s\t%s\n", own, config.Name)
	}
	return map[string]string{"hosts": hosts, "hostname": config.Name + "\n", "resolv.conf": servers}
}
