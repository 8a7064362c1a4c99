package jail

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const user = 64055

// inJail runs a shell command in a jail and returns its output.
func inJail(t *testing.T, j Jail, script string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	j.Directory = filepath.Join(t.TempDir(), "root")
	j.Say = func(text string) { t.Error(text) }
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	command := exec.Command(shell, "-c", script)
	command.Stdout, command.Stderr = &output, &output
	wait, err := j.Start(command)
	if err != nil {
		t.Fatal(err)
	}
	if err := wait(); err != nil {
		t.Fatalf("%v\n%s", err, &output)
	}
	return output.String()
}

func TestProgramHasNothingOfRoot(t *testing.T) {
	before, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	said := inJail(t, Jail{User: user, Processes: true, Offline: true}, "cat /proc/self/status; echo root: $(ls /); ls /proc/self/net >/dev/null; env")
	t.Log(said)
	for _, want := range []string{
		`Uid:\s+64055\s+64055\s+64055\s+64055`, `Gid:\s+64055\s+64055\s+64055\s+64055`, `Groups:\s*\n`,
		`CapInh:\s+0+\n`, `CapPrm:\s+0+\n`, `CapEff:\s+0+\n`, `CapBnd:\s+0+\n`, `CapAmb:\s+0+\n`, `NoNewPrivs:\s+1`,
	} {
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("there is no %q", want)
		}
	}
	root := strings.Fields(regexp.MustCompile(`root: (.*)`).FindStringSubmatch(said)[1])
	for _, name := range root {
		if !strings.Contains(" bin dev etc lib lib32 lib64 libx32 proc sbin usr ", " "+name+" ") {
			t.Errorf("it sees /%s", name)
		}
	}
	after, err := os.ReadFile("/proc/self/status")
	capabilities := regexp.MustCompile(`Cap(Prm|Eff|Bnd):\s+\w+`)
	if err != nil || strings.Join(capabilities.FindAllString(string(before), -1), "") != strings.Join(capabilities.FindAllString(string(after), -1), "") {
		t.Errorf("the runner itself has changed: %s", after)
	}
	if _, err := os.Stat("/proc/self/root/tmp"); err != nil {
		t.Errorf("the runner's own root has changed: %v", err)
	}
}

func TestProgramSeesWhatItIsShown(t *testing.T) {
	directory := t.TempDir()
	shown, hidden, writable := filepath.Join(directory, "shown"), filepath.Join(directory, "hidden"), filepath.Join(directory, "writable")
	err := errors.Join(os.WriteFile(shown, []byte("unchanged"), 0o666), os.WriteFile(hidden, nil, 0o666), os.Mkdir(writable, 0o700), os.Chmod(shown, 0o666))
	if err = errors.Join(err, os.Chown(writable, user, user)); errors.Is(err, os.ErrPermission) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(shown)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const below = "/usr/lib/os-release" // its directory is shown anyway
	j := Jail{User: user, Paths: []Path{{Name: shown, File: file}, {Name: writable, Writable: true}, {Name: below}}}
	said := inJail(t, j, `cat `+shown+`; echo
		echo x 2>&- >`+shown+` || echo read-only
		echo x >`+writable+`/new && echo written
		grep -q ^ID= `+below+` && echo below
		test -e `+hidden+` || echo hidden
		mknod /tmp/x c 1 3 2>&- || echo no device
		echo x 2>&- >/dev/x || echo no root
		head -c 4 /dev/urandom | wc -c`)
	for _, want := range []string{"unchanged\n", "read-only\n", "written\n", "below\n", "hidden\n", "no device\n", "no root\n", "4\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in\n%s", want, said)
		}
	}
	if info, err := os.Stat(filepath.Join(writable, "new")); err != nil || info.Sys().(*syscall.Stat_t).Uid != user {
		t.Errorf("what was written is %v, %v", info, err)
	}
}

func TestFileThatWasReplacedIsNotShown(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	directory := t.TempDir()
	shown := filepath.Join(directory, "shown")
	if err := os.WriteFile(shown, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(shown)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := errors.Join(os.Remove(shown), os.Symlink("/etc/shadow", shown)); err != nil {
		t.Fatal(err)
	}
	j := Jail{User: user, Directory: filepath.Join(directory, "root"), Paths: []Path{{Name: shown, File: file}}}
	if _, err := j.Start(exec.Command("/bin/true")); !errors.Is(err, ErrReplaced) {
		t.Errorf("error %v", err)
	}
}

// Some programs have to stay root, for files whose owners they keep. They have no other privileges of root.
func TestProgramKeepsTheCapabilitiesThatItIsGivenAlone(t *testing.T) {
	said := inJail(t, Jail{Capabilities: []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE}, Processes: true}, "cat /proc/self/status; mount -t tmpfs x /dev 2>&1 || echo not mounted")
	for _, want := range []string{`Uid:\s+0\s`, `CapEff:\s+0+3\n`, `CapBnd:\s+0+3\n`, `NoNewPrivs:\s+1`, `not mounted`} {
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("there is no %q in\n%s", want, said)
		}
	}
}

func TestProgramThatCannotBeStarted(t *testing.T) {
	for name, j := range map[string]Jail{"as it is": {}, "locked in": {User: user, Directory: filepath.Join(t.TempDir(), "root")}} {
		t.Run(name, func(t *testing.T) {
			if j.locked() && os.Getuid() != 0 {
				t.Skip("only root can become another user")
			}
			if _, err := j.Start(exec.Command("/nonexistent/qemu")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestProgramLivesAsLongAsItsThread: Go must not end the thread earlier, because the kernel would kill the program.
func TestProgramLivesAsLongAsItsThread(t *testing.T) {
	command := exec.Command("sleep", "1")
	began := time.Now()
	wait, err := Jail{}.Start(command)
	if err != nil {
		t.Fatal(err)
	}
	if err := wait(); err != nil || time.Since(began) < time.Second {
		t.Errorf("it ended after %s with %v", time.Since(began), err)
	}
}
