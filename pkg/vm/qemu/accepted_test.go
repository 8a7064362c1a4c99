package qemu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startTimeout is generous, because several QEMUs share few cores with other tests.
const startTimeout = time.Minute

func TestQEMUAcceptsEveryGoldenMachine(t *testing.T) {
	binary := installedQEMU(t)
	directory := t.TempDir()
	count := 0
	for name, machine := range golden {
		count++
		// The paths of sockets have to be short.
		own := filepath.Join(directory, fmt.Sprint(count))
		if err := os.Mkdir(own, 0o700); err != nil {
			t.Fatal(err)
		}
		m := machine(own)
		if missing := cannotBeMadeUp(m); missing != "" {
			t.Logf("%s is not started, it needs %s", name, missing)
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			accept(t, binary, own, m)
		})
	}
}

func TestQEMUHasRoomForAsManyDevicesAsAreAllowed(t *testing.T) {
	binary := installedQEMU(t)
	for machineType, room := range map[string]int{"q35": pciSlots, "microvm": mmioSlots} {
		t.Run(machineType, func(t *testing.T) {
			dir := t.TempDir()
			m := withMonitor(dir, func(m *Machine) { m.Type, m.Kernel, m.Disks = machineType, kernel(dir), disks(dir, room-2) })
			accept(t, binary, dir, m)
			m.Disks = disks(dir, room-1)
			if _, err := m.Args(); err == nil {
				t.Errorf("%d devices are accepted", room+1)
			}
		})
	}
}

// installedQEMU returns the QEMU of this machine, which real tests need.
func installedQEMU(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts QEMU")
	}
	binary, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Fatalf("%s: apt-get install qemu-system-x86", err)
	}
	return binary
}

// cannotBeMadeUp returns what a machine needs and this test cannot create, for example for lack of privileges.
func cannotBeMadeUp(m Machine) string {
	needs := map[string]bool{}
	for _, d := range m.Disks {
		needs["root's block devices"] = needs["root's block devices"] || d.BlockDevice
	}
	for _, cd := range m.CDs {
		needs["a medium from the network"] = needs["a medium from the network"] || strings.Contains(cd.Path, "://")
	}
	for _, n := range m.Networks {
		needs["/dev/net/tun"] = needs["/dev/net/tun"] || n.Tap != ""
		needs["/dev/vhost-net"] = needs["/dev/vhost-net"] || n.VHost
	}
	needs["root's virtiofsd"] = m.sharesMemory()
	needs["swtpm"] = m.TPM != ""
	for what, needed := range needs {
		if needed && !has(what) {
			return what
		}
	}
	return ""
}

// has reports whether this machine has what a test needs.
func has(what string) bool {
	if strings.HasPrefix(what, "root's ") {
		return os.Getuid() == 0
	}
	if strings.HasPrefix(what, "/dev/") {
		device, err := os.OpenFile(what, os.O_RDWR, 0)
		if err == nil {
			device.Close()
		}
		return err == nil
	}
	_, err := exec.LookPath(what)
	return err == nil
}

// accept starts the machine paused and checks that it quits when asked to. QEMU must not print any message.
func accept(t *testing.T, binary, directory string, m Machine) {
	// Whether KVM works here is another matter. KVM's command line differs from TCG's in two options, which have no
	// files.
	m.Accelerator = TCG
	m.Paused = true
	m.Monitor = filepath.Join(directory, "monitor.sock")
	makeUp(t, directory, m)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, binary, mustArgs(t, m)...)
	command.ExtraFiles = handedOver(t, m)
	if len(m.Networks) > 0 && m.Networks[0].Tap != "" {
		// QEMU creates the tap interface, which disappears with the network namespace.
		command.SysProcAttr = ownNetwork()
	}
	var remarks bytes.Buffer
	command.Stderr = &remarks
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait(); cancel() }()
	status, err := quit(ctx, m.Monitor)
	if waited := <-ended; err != nil || waited != nil {
		t.Fatalf("QMP: %v, end: %v, QEMU says:\n%s", err, waited, &remarks)
	}
	if status != "prelaunch" {
		t.Errorf("status %q, want prelaunch", status)
	}
	if remarks.Len() > 0 {
		t.Errorf("QEMU remarks:\n%s", &remarks)
	}
}

// handedOver opens what QEMU gets by file descriptor. It removes the names of disks, so that QEMU cannot find them by
// name.
func handedOver(t *testing.T, m Machine) []*os.File {
	t.Helper()
	var files []*os.File
	for path, descriptor := range map[string]int{m.Monitor: m.MonitorDescriptor, m.Agent: m.AgentDescriptor} {
		if descriptor > 0 {
			files = append(files, make([]*os.File, max(0, descriptor-2-len(files)))...)
			files[descriptor-3] = listening(t, path)
		}
	}
	for _, n := range m.Networks {
		if n.TapDescriptor > 0 {
			files = append(files, openTap(t))
		}
		if n.VHostDescriptor > 0 {
			files = append(files, openFile(t, "/dev/vhost-net", os.O_RDWR))
		}
	}
	if m.Firmware != nil && m.Firmware.VarsDescriptor > 0 {
		files = append(files, openFile(t, m.Firmware.Vars, os.O_RDWR))
	}
	for _, cd := range m.CDs {
		if cd.Descriptor > 0 {
			files = append(files, openFile(t, cd.Path, os.O_RDONLY))
		}
	}
	for _, d := range m.Disks {
		if d.Descriptor == 0 {
			continue
		}
		flags := os.O_RDWR
		if d.ReadOnly {
			flags = os.O_RDONLY
		}
		files = append(files, openFile(t, d.Path, flags))
		if err := os.Remove(d.Path); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func openFile(t *testing.T, path string, flags int) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// listening returns a Unix socket that listens at a path.
func listening(t *testing.T, path string) *os.File {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	file, err := listener.File()
	if err := errors.Join(err, listener.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// openTap creates a tap interface that disappears when it is closed.
func openTap(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "tap")
	t.Cleanup(func() { _ = file.Close() })
	request, err := unix.NewIfreq("qemutest%d")
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		t.Fatal(err)
	}
	return file
}

// ownNetwork runs a process in a network namespace, and, if we are not root, in a user namespace, where it may create
// one.
func ownNetwork() *syscall.SysProcAttr {
	if os.Getuid() == 0 {
		return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNET | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
}

// quit queries the machine's status and ends it.
func quit(ctx context.Context, socket string) (status string, err error) {
	return command(ctx, socket, "query-status", "quit")
}

// press presses the power button.
func press(t *testing.T, socket string) error {
	_, err := command(t.Context(), socket, "system_powerdown")
	return err
}

// command sends QMP commands. It returns the status that they report, if any.
func command(ctx context.Context, socket string, names ...string) (status string, err error) {
	connection, err := dial(ctx, socket)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		return "", err
	}
	replies := json.NewDecoder(connection)
	const greeting = ""
	for _, name := range append([]string{greeting, "qmp_capabilities"}, names...) {
		if name != greeting {
			if _, err := fmt.Fprintf(connection, `{"execute": %q}`, name); err != nil {
				return "", err
			}
		}
		var reply struct {
			Return struct{ Status string }
			Error  any
		}
		if err := replies.Decode(&reply); err != nil || reply.Error != nil {
			return "", fmt.Errorf("%s: %v, %w", name, reply.Error, err)
		}
		status += reply.Return.Status
	}
	return status, nil
}

// dial connects as soon as something listens.
func dial(ctx context.Context, socket string) (net.Conn, error) {
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		connection, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			return connection, nil
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// makeUp creates the files, directories and servers that a machine refers to.
func makeUp(t *testing.T, directory string, m Machine) {
	for _, d := range m.Disks {
		switch {
		case d.BlockDevice:
			makeBlockDevice(t, d.Path)
		case d.Format == QCOW2:
			writeFile(t, d.Path, emptyQCOW2())
		default:
			writeFile(t, d.Path, make([]byte, mebibyte))
		}
	}
	for _, cd := range m.CDs {
		if cd.Path != "" {
			writeFile(t, cd.Path, make([]byte, mebibyte))
		}
	}
	if m.Firmware != nil {
		writeFile(t, m.Firmware.Code, make([]byte, mebibyte))
		writeFile(t, m.Firmware.Vars, make([]byte, mebibyte/2))
	}
	if m.Kernel != nil {
		writeFile(t, m.Kernel.Image, bzImage())
		writeFile(t, m.Kernel.Initrd, []byte("initrd"))
	}
	for _, c := range m.FirmwareConfig {
		writeFile(t, c.File, []byte("{}"))
	}
	for _, s := range m.Shares {
		if s.Socket != "" {
			serveVirtiofs(t, directory, s.Socket)
		} else if err := os.MkdirAll(s.Path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if m.TPM != "" {
		serveTPM(t, directory, m.TPM)
	}
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	// O_EXCL: what a test creates never replaces a real file.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(content); err != nil {
		t.Fatal(err)
	}
}
