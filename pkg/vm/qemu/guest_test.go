package qemu

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// bootTimeout is for guests in software emulation on few cores.
const bootTimeout = 3 * time.Minute

// guestFile returns a file of the guest that "make tools" builds, or the file in an environment variable instead.
func guestFile(t *testing.T, variable, name string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		path = filepath.Join("..", "..", "..", ".tools", "guest", name)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s: run make tools", err)
	}
	return path
}

// guest is a tiny Linux (integration/images/guestimage/tiny) that prints on its console what it finds and obeys lines written
// to it.
type guest struct {
	stdin   io.WriteCloser
	says    chan string
	ended   chan error
	monitor string
}

func boot(t *testing.T, m Machine) *guest {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bootTimeout)
	command := exec.CommandContext(ctx, installedQEMU(t), mustArgs(t, m)...)
	g := &guest{says: make(chan string, 10000), ended: make(chan error, 1), monitor: m.Monitor}
	command.Stdout = &lines{keep: 1, each: func(line string) { g.says <- line }}
	command.Stderr = os.Stderr
	var err error
	if g.stdin, err = command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { g.ended <- command.Wait(); close(g.ended); close(g.says) }()
	t.Cleanup(func() {
		cancel()
		for range g.ended {
		}
	})
	return g
}

// expect reads the console until each of the texts was there, in any order.
func (g *guest) expect(t *testing.T, texts ...string) {
	t.Helper()
	missing := map[string]bool{}
	for _, text := range texts {
		missing[text] = true
	}
	last := ""
	for len(missing) > 0 {
		line, ok := <-g.says
		if !ok {
			t.Fatalf("the guest never says %v; its last line is %q", missing, last)
		}
		last = line
		for text := range missing {
			if strings.Contains(line, text) {
				delete(missing, text)
			}
		}
	}
}

func (g *guest) tell(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(g.stdin, line); err != nil {
		t.Fatal(err)
	}
}

func TestGuestFindsItsDevicesAndObeysThePowerButton(t *testing.T) {
	installedQEMU(t)
	dir := t.TempDir()
	m := Machine{
		Name: "guest", Accelerator: TCG, CPU: CPU{Count: 2, Max: 4}, Memory: 256, Monitor: dir + "/monitor.sock",
		Kernel: &Kernel{
			Image: guestFile(t, "GUEST_KERNEL", "vmlinuz"), Initrd: guestFile(t, "GUEST_INITRD", "tiny.cpio.gz"),
			CommandLine: "console=ttyS0 panic=-1 tiny.disk=data tiny.disk=more tiny.share=etcdshare tiny.share=read-only",
		},
		Disks:          []Disk{{Serial: "data", Path: dir + "/data.img"}, {Serial: "more", Path: dir + "/more.qcow2", Format: QCOW2, ReadOnly: true}},
		Shares:         []Share{{Tag: "etcdshare", Path: dir + "/etcd"}, {Tag: "read-only", Path: dir + "/images", ReadOnly: true}},
		Networks:       []Network{{MAC: "52:54:00:12:34:56", MTU: 1400, User: &UserNetwork{Subnet: netip.MustParsePrefix("10.7.7.0/24")}}},
		FirmwareConfig: []FirmwareConfig{{Name: "opt/org.flatcar-linux/config", File: dir + "/config.ign"}},
	}
	withoutKernel := m
	withoutKernel.Kernel = nil // It is real, and this test must not write it.
	makeUp(t, dir, withoutKernel)
	g := boot(t, m)
	g.expect(t, "disk=data size=1048576", "disk=more size=1048576", "share=etcdshare mounted", "share=read-only mounted", "tiny: ready",
		fmt.Sprintf("ignition=%x size=2", sha256.Sum256([]byte("{}"))), "cpus=2")

	g.tell(t, "sh cat /sys/class/net/eth0/address /sys/class/net/eth0/mtu")
	g.expect(t, "52:54:00:12:34:56", "1400", "exit=0")
	owner := os.Getuid()
	if owner == 0 {
		owner = 1234 // Only root can change the owner of files.
	}
	g.tell(t, fmt.Sprintf("sh cd /mnt/etcdshare && echo kept >file && chown %d file && chmod 0640 file", owner))
	g.expect(t, "exit=0")
	checkOwned(t, dir+"/etcd/file", "kept\n", owner)
	g.tell(t, "sh echo no >/mnt/read-only/file")
	g.expect(t, "exit=1")
	if err := press(t, g.monitor); err != nil {
		t.Fatal(err)
	}
	g.expect(t, "tiny: powerdown")
	if err := <-g.ended; err != nil {
		t.Errorf("QEMU ended with %s", err)
	}
}

// checkOwned checks that what the guest wrote is on the host, with owner and mode.
func checkOwned(t *testing.T, path, want string, wantOwner int) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if string(content) != want || owner != wantOwner || info.Mode() != 0o640 {
		t.Errorf("%s: content %q, owner %d, mode %s", path, content, owner, info.Mode())
	}
}
