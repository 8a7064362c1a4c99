package microvm_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

// workload says what it is, ends with code 7 once there is a file, and with 5 if it is asked to end.
const workload = `trap 'echo workload: asked to end; exit 5' TERM; echo workload: $GREETING from $(pwd) as $(id -u); ` +
	`while [ ! -e /tmp/end ]; do sleep 0.1; done; exit 7`

// TestLifeOfAMachine boots a machine twice: it is killed in the middle of writing, and then finds its files and more room.
func TestLifeOfAMachine(t *testing.T) {
	m := newMachine(t, workload)
	var c *agentwire.Client
	step(t, "boots and answers", func(*testing.T) { m.start(t); c = m.connect(t) })
	step(t, "runs the image's process", func(t *testing.T) { runsWorkload(t, m, c) })
	step(t, "commands end with their codes", func(t *testing.T) { exitCodes(t, c) })
	step(t, "commands have environment, directory and user", func(t *testing.T) { surroundings(t, c) })
	step(t, "the image's links lead the agent nowhere", func(t *testing.T) { ownFiles(t, c) })
	step(t, "commands read their input", func(t *testing.T) { input(t, c) })
	step(t, "commands end with their time and context", func(t *testing.T) { timeAndContext(t, c) })
	step(t, "much output beside other commands", func(t *testing.T) { muchOutput(t, c) })
	step(t, "files", func(t *testing.T) { files(t, c) })
	step(t, "the image's process ends and the machine keeps running", func(t *testing.T) { workloadEnds(t, m, c) })
	step(t, "a host takes over in the middle of an answer", func(*testing.T) { c = takesOver(t, m, c) })
	step(t, "is killed while it writes", func(t *testing.T) { killedWhileWriting(t, m, c) })

	m.grow(t, 160*mib)
	step(t, "boots with larger disks", func(*testing.T) { m.start(t); c = m.connect(t) })
	step(t, "has its files and more room", func(t *testing.T) { hasGrown(t, c) })
	step(t, "another machine opens the same root", func(t *testing.T) { sharesRoot(t, m) })
	step(t, "shuts down", func(t *testing.T) {
		m.await(t, "workload: hello")
		if err := c.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.awaitEnd(t)
		for _, text := range []string{"workload: asked to end", "the image's process has ended with exit code 5"} {
			if !strings.Contains(m.console.String(), text) {
				t.Errorf("the console lacks %q", text)
			}
		}
		if strings.Contains(m.console.String(), "still in use") {
			t.Error("a disk was not unmounted")
		}
	})
}

func runsWorkload(t *testing.T, m *machine, c *agentwire.Client) {
	m.await(t, "workload: hello from /srv/new as 33")
	s, err := c.Ping(t.Context())
	if err != nil || s.Workload != agentwire.WorkloadRunning || s.ExitCode != nil || s.Uptime <= 0 || len(s.Grown) > 0 {
		t.Errorf("the status is %+v, %v", s, err)
	}
}

func exitCodes(t *testing.T, c *agentwire.Client) {
	for name, test := range map[string]struct {
		command []string
		want    int
		says    string
	}{
		"success":                          {[]string{"true"}, 0, ""},
		"its own code":                     {[]string{"sh", "-c", "exit 42"}, 42, ""},
		"a signal":                         {[]string{"sh", "-c", "kill -9 $$"}, 137, ""},
		"a program that is not there":      {[]string{"nosuch"}, agentwire.ExitNotFound, `there is no program "nosuch"`},
		"a path that is not there":         {[]string{"/bin/nosuch"}, agentwire.ExitNotFound, "no such file"},
		"an interpreter that is missing":   {[]string{"lost"}, agentwire.ExitNotFound, "no such file"},
		"a file that is no program":        {[]string{"/etc/passwd"}, agentwire.ExitNotExecutable, "not executable"},
		"a directory":                      {[]string{"/etc"}, agentwire.ExitNotExecutable, "not executable"},
		"one that leaves another behind":   {[]string{"sh", "-c", "sleep 77777 & echo $! >/tmp/left; exit 3"}, 3, ""},
		"one beside the working directory": {[]string{"../../bin/true"}, 0, ""},
	} {
		code, _, stderr := run(t, c, agentwire.Exec{Command: test.command}, nil)
		if code != test.want || !strings.Contains(stderr, test.says) {
			t.Errorf("%s: code %d, want %d; it says %q", name, code, test.want, stderr)
		}
	}
	sh(t, c, "kill $(cat /tmp/left)") // it was left running
	for _, e := range []agentwire.Exec{{}, {Command: []string{"a\x00b"}}} {
		if _, err := c.Exec(t.Context(), e, nil, nil, nil); !errors.Is(err, agentwire.ErrInvalid) {
			t.Errorf("%q: %v", e.Command, err)
		}
	}
	code, _, stderr := run(t, c, agentwire.Exec{Command: []string{"true"}, User: "unknown"}, nil)
	if code != agentwire.ExitNotExecutable || !strings.Contains(stderr, `no user "unknown"`) {
		t.Errorf("an unknown user: code %d, %q", code, stderr)
	}
}

func surroundings(t *testing.T, c *agentwire.Client) {
	const say = `echo $GREETING $OTHER $HOME; echo $PATH; pwd; id -u; id -g; id -G; echo >/dev/stdout; tty`
	for name, test := range map[string]struct {
		exec agentwire.Exec
		want []string
	}{
		"those of the image": {agentwire.Exec{}, []string{
			"hello image /srv", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "/srv/new", "33", "44", "44 55", "", "not a tty",
		}},
		"its own": {agentwire.Exec{Env: []string{"OTHER=own", "PATH=/bin", "HOME=/"}, Directory: "/var/tmp", User: "7:web"}, []string{
			"hello own /", "/bin", "/var/tmp", "7", "44", "44", "", "not a tty",
		}},
	} {
		test.exec.Command = []string{"sh", "-c", say}
		_, stdout, stderr := run(t, c, test.exec, nil)
		if got := strings.TrimSpace(stdout); got != strings.Join(test.want, "\n") {
			t.Errorf("%s: %q, want %q; %s", name, got, test.want, stderr)
		}
	}
}

func ownFiles(t *testing.T, c *agentwire.Client) {
	for command, want := range map[string]string{
		"cat /etc/hostname; hostname": "small\nsmall",
		"cat /etc/resolv.conf":        "nameserver 100.96.0.1",
		"grep small /etc/hosts":       "100.96.0.2\tsmall",
		"cat /sys/class/net/eth0/mtu": "1400",
		"ip route":                    "default via 100.96.0.1 dev eth0 \n100.96.0.0/30 dev eth0 scope link  src 100.96.0.2",
		"ls -d /tmp /dev /proc /run /workspace /storage/workspace": "/dev\n/proc\n/run\n/storage/workspace\n/tmp\n/workspace",
		"stat -c %a /tmp /dev/shm":                                 "1777\n1777",
		"mount | grep -c -E 'on (/|/proc|/sys|/dev|/dev/pts|/dev/shm|/tmp|/run|/storage|/workspace|/etc/hosts) '": "11",
		"touch /workspace/here && ls /storage/workspace":                                                          "here",
		"unshare -U true && echo own user namespaces":                                                             "own user namespaces",
	} {
		if got := sh(t, c, command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

func input(t *testing.T, c *agentwire.Client) {
	sent := make([]byte, 300<<10)
	_, _ = rand.Read(sent) // it never fails
	_, got, _ := run(t, c, agentwire.Exec{Command: []string{"cat"}}, bytes.NewReader(sent))
	if got != string(sent) {
		t.Errorf("%d bytes of %d come back", len(got), len(sent))
	}
	forever, _ := io.Pipe()
	if code, _, _ := run(t, c, agentwire.Exec{Command: []string{"true"}}, forever); code != 0 {
		t.Errorf("a command that reads nothing ends with %d", code)
	}
}

func timeAndContext(t *testing.T, c *agentwire.Client) {
	const command = "sleep 77777 & sleep 77777; true"
	code, _, _ := run(t, c, agentwire.Exec{Command: []string{"sh", "-c", command}, Timeout: 500 * time.Millisecond}, nil)
	if code != agentwire.ExitTimeout {
		t.Errorf("it ends with %d", code)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, errors.New("called off"))
	defer cancel()
	if _, err := c.Exec(ctx, agentwire.Exec{Command: []string{"sh", "-c", command}}, nil, nil, nil); err == nil || !strings.Contains(err.Error(), "called off") {
		t.Errorf("it ends with %v", err)
	}
	eventually(t, "all of both groups have ended", func() bool { return sh(t, c, "ps | grep -c '[s]leep 77777' || true") == "0" })
}

// muchOutput has one command write 10 MiB to a reader that stops in the middle until another one has ended.
func muchOutput(t *testing.T, c *agentwire.Client) {
	const size = 10 * mib
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		code, err := c.Exec(t.Context(), agentwire.Exec{Command: []string{"dd", "if=/dev/zero", "bs=64k", "count=160"}}, nil, writer, nil)
		if err == nil && code != 0 {
			err = errors.New("dd fails")
		}
		writer.CloseWithError(err)
		done <- err
	}()
	if _, err := io.CopyN(io.Discard, reader, mib); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, c, "echo beside"); got != "beside" {
		t.Errorf("another command says %q", got)
	}
	n, err := io.Copy(io.Discard, reader)
	if err != nil || n != size-mib || <-done != nil {
		t.Errorf("%d bytes of %d follow, %v", n, size-mib, err)
	}
}

func files(t *testing.T, c *agentwire.Client) {
	sent := make([]byte, 200<<10)
	_, _ = rand.Read(sent) // it never fails
	var got bytes.Buffer
	for _, name := range []string{"/workspace/a/b/c", "/etc/hosts"} { // on which something is mounted
		got.Reset()
		if n, err := c.WriteFile(t.Context(), name, 0o640, bytes.NewReader(sent)); err != nil || n != int64(len(sent)) {
			t.Fatalf("%d bytes are written: %v", n, err)
		}
		if n, err := c.ReadFile(t.Context(), name, &got); err != nil || n != int64(len(sent)) || !bytes.Equal(got.Bytes(), sent) {
			t.Errorf("%s: %d bytes are read: %v", name, n, err)
		}
	}
	if got := sh(t, c, "stat -c '%a %u' /workspace/a/b/c; ls -A /workspace/a/b"); got != "640 0\nc" {
		t.Errorf("the file is %s", got)
	}
	for name, want := range map[string]error{
		"/nowhere": agentwire.ErrNotFound, "/etc": agentwire.ErrIsDirectory, "/etc/endless": agentwire.ErrNotFile, "/etc/own": agentwire.ErrInvalid,
		"etc/passwd": agentwire.ErrInvalid, "/proc/kmsg": agentwire.ErrNotFile, "/proc/1/root/init": agentwire.ErrInvalid, "/../../init": agentwire.ErrNotFound,
	} {
		if _, err := c.ReadFile(t.Context(), name, io.Discard); !errors.Is(err, want) {
			t.Errorf("reading %s: %v, want %s", name, err, want)
		}
	}
	for name, want := range map[string]error{"/etc": agentwire.ErrIsDirectory, "/etc/passwd/x": agentwire.ErrInvalid, "/sys/x": nil} {
		_, err := c.WriteFile(t.Context(), name, 0, strings.NewReader("x"))
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("writing %s: %v, want %v", name, err, want)
		}
	}
	sh(t, c, "mount -t tmpfs -o size=256k small /srv/new")
	if _, err := c.WriteFile(t.Context(), "/srv/new/x", 0, io.LimitReader(zeros{}, mib)); !errors.Is(err, agentwire.ErrNoSpace) {
		t.Errorf("writing more than there is room for: %v", err)
	}
	if got := sh(t, c, "ls -A /srv/new"); got != "" {
		t.Errorf("it leaves %s", got)
	}
}

// zeros are endless.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func workloadEnds(t *testing.T, m *machine, c *agentwire.Client) {
	sh(t, c, "touch /tmp/end")
	m.await(t, "the image's process has ended with exit code 7")
	eventually(t, "the workload has ended with 7", func() bool {
		s, err := c.Ping(t.Context())
		return err == nil && s.Workload == agentwire.WorkloadEnded && s.ExitCode != nil && *s.ExitCode == 7
	})
}

// takesOver closes the connection while the guest sends, and leaves half a frame in the guest.
func takesOver(t *testing.T, m *machine, c *agentwire.Client) *agentwire.Client {
	reader, writer := io.Pipe()
	go c.Exec(t.Context(), agentwire.Exec{Command: []string{"yes", "77777"}}, nil, writer, nil) //nolint:errcheck // it ends with the session
	if _, err := io.CopyN(io.Discard, reader, mib); err != nil {
		t.Fatal(err)
	}
	reader.Close()
	c.Close()
	half := m.dial(t)
	if _, err := half.Write([]byte("\x00\x00\xff\xff{\"id\":1,\"kind\":\"ex")); err != nil {
		t.Fatal(err)
	}
	half.Close()
	c = m.connect(t)
	if _, err := c.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command of the earlier host has ended", func() bool { return sh(t, c, "ps | grep -c '[y]es 77777' || true") == "0" })
	return c
}

func killedWhileWriting(t *testing.T, m *machine, c *agentwire.Client) {
	sh(t, c, "echo image >/var/kept; echo storage >/storage/kept; sync")
	if _, err := c.WriteFile(t.Context(), "/workspace/kept", 0, strings.NewReader("workspace\n")); err != nil {
		t.Fatal(err)
	}
	started, writer := io.Pipe()
	go c.Exec(t.Context(), agentwire.Exec{ //nolint:errcheck // it ends with the machine
		Command: []string{"sh", "-c", "echo begins; while :; do dd if=/dev/zero of=/storage/lost bs=64k count=200; dd if=/dev/zero of=/var/lost bs=64k count=200; done"}, User: "root",
	}, nil, writer, nil)
	if _, err := io.ReadFull(started, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it writes", func() bool { return sh(t, c, "ls /var") != "kept\ntmp" })
	m.kill()
	started.Close()
}

func hasGrown(t *testing.T, c *agentwire.Client) {
	if got := sh(t, c, "cat /var/kept /storage/kept /workspace/kept"); got != "image\nstorage\nworkspace" {
		t.Errorf("the files have %q", got)
	}
	s, err := c.Ping(t.Context())
	if err != nil || strings.Join(s.Grown, " ") != "overlay storage" {
		t.Errorf("the status is %+v, %v", s, err)
	}
	sh(t, c, "for at in /storage /; do test $(($(stat -f -c '%b*%S' $at))) -gt 120000000 || exit 1; done")
}

// sharesRoot starts a second QEMU with the same squashfs, up to where it has opened its disks.
func sharesRoot(t *testing.T, m *machine) {
	monitor := m.file("second.sock")
	arguments, err := qemu.Machine{
		Name: "second", Accelerator: qemu.TCG, CPU: qemu.CPU{Count: 1}, Memory: 64, Paused: true, Monitor: monitor,
		Disks: []qemu.Disk{{Serial: agentwire.DiskRoot, Path: m.file(agentwire.DiskRoot), ReadOnly: true}},
	}.Args()
	if err != nil {
		t.Fatal(err)
	}
	second := exec.CommandContext(t.Context(), program, arguments...)
	var said bytes.Buffer
	second.Stderr = &said
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	defer second.Wait()         //nolint:errcheck // it was killed
	defer second.Process.Kill() //nolint:errcheck // it may have ended
	eventually(t, "QEMU greets: "+said.String(), func() bool {
		connection, err := net.Dial("unix", monitor)
		if err != nil {
			return false
		}
		defer connection.Close()
		greeting := make([]byte, 7)
		_, err = io.ReadFull(connection, greeting)
		return err == nil && string(greeting) == `{"QMP":`
	})
}

// TestMachineWithoutWhatItNeeds: what is missing in an image is the end of the workload, and what is missing in a machine
// is the end of the machine. Both say so.
func TestMachineWithoutWhatItNeeds(t *testing.T) {
	m := newMachine(t, workload)
	m.config.Process.Entrypoint, m.config.Network = []string{"/usr/bin/nosuch"}, nil
	step(t, "boots without its program", func(t *testing.T) {
		m.start(t)
		c := m.connect(t)
		m.await(t, "the image's process cannot be run: open /usr/bin/nosuch: no such file or directory")
		s, err := c.Ping(t.Context())
		if err != nil || s.Workload != agentwire.WorkloadEnded || s.ExitCode == nil || *s.ExitCode != agentwire.ExitNotFound {
			t.Errorf("the status is %+v, %v", s, err)
		}
		if got := sh(t, c, "ip route; ip -o addr | grep -c 127.0.0.1"); got != "1" {
			t.Errorf("the network is %q", got)
		}
		if err := c.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		m.awaitEnd(t)
	})
	step(t, "ends with a damaged disk", func(t *testing.T) {
		if err := os.WriteFile(m.file(agentwire.DiskStorage), make([]byte, mib), 0o600); err != nil {
			t.Fatal(err)
		}
		m.start(t)
		m.awaitEnd(t)
		if !strings.Contains(m.console.String(), "smolvm: the machine cannot continue: disk storage: mounting ext4 at /disks/storage: invalid argument\n") {
			t.Error("the console does not say why")
		}
	})
}
