package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
)

// loadModules loads the modules of a list, each of which comes after those that it needs.
func loadModules(directory, list string) error {
	names, err := os.ReadFile(filepath.Join(directory, list))
	if err != nil {
		return fmt.Errorf("loading modules: %w", err)
	}
	for _, name := range strings.Fields(string(names)) {
		if err := loadModule(filepath.Join(directory, name)); err != nil {
			return fmt.Errorf("loading module %s: %w", name, err)
		}
	}
	return nil
}

func loadModule(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	if err := unix.FinitModule(int(file.Fd()), "", 0); !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// findBySerial returns the path of the block device with a serial number. It waits for it.
func findBySerial(serial string) (string, error) {
	device := ""
	found := await(func() bool {
		disks, _ := filepath.Glob("/sys/block/*/serial") // the pattern is good
		for _, file := range disks {
			text, err := os.ReadFile(file)
			if err == nil && strings.TrimSpace(string(text)) == serial {
				device = "/dev/" + filepath.Base(filepath.Dir(file))
				return exists(device)
			}
		}
		return false
	})
	if !found {
		return "", fmt.Errorf("the machine has no disk with the serial number %q", serial)
	}
	return device, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// port is a virtio-serial port. Its host comes and goes.
type port struct{ *os.File }

// away is how long a host is waited for before the next look. The kernel has no better way to wait for one.
const away = 20 * time.Millisecond

// openPort opens the port of a name. It waits for it.
func openPort(name string) (io.ReadWriter, error) {
	device := ""
	found := await(func() bool {
		ports, _ := filepath.Glob("/sys/class/virtio-ports/*/name") // the pattern is good
		for _, file := range ports {
			text, err := os.ReadFile(file)
			if err == nil && strings.TrimSpace(string(text)) == name {
				device = "/dev/" + filepath.Base(filepath.Dir(file))
				return exists(device)
			}
		}
		return false
	})
	if !found {
		return nil, fmt.Errorf("the machine has no port %q", name)
	}
	// Go would make it non-blocking, and wait for a host that is away with all of a processor.
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", device, err)
	}
	return port{os.NewFile(uintptr(fd), device)}, nil
}

// Read returns agentwire.ErrAway while no host is connected.
func (p port) Read(b []byte) (int, error) {
	n, err := p.File.Read(b)
	if errors.Is(err, io.EOF) {
		time.Sleep(away)
		return 0, agentwire.ErrAway
	}
	return n, err
}

// setLimit sets the number of open files that processes start with.
func setLimit() error {
	// That of package unix would leave the limits of children as they were.
	limit := syscall.Rlimit{Cur: openFiles, Max: mostOpenFiles}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("setting the limit of open files: %w", err)
	}
	return nil
}
