package instance

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// child makes the test binary a process that claims a machine and waits.
const child = "INSTANCE_TEST_CHILD"

func TestMain(m *testing.M) {
	if directory := os.Getenv(child); directory != "" {
		_, err := claim(directory)
		fmt.Println(err)
		time.Sleep(time.Minute)
	}
	os.Exit(m.Run())
}

// claimant starts a process that claims a machine.
func claimant(t *testing.T, directory string) (*exec.Cmd, string) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), child+"="+directory)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return command, line
}

func TestOneProcessForOneMachine(t *testing.T) {
	directory := t.TempDir()
	if pid, err := holder(directory); pid != 0 || err != nil {
		t.Errorf("before: %d, %v", pid, err)
	}
	if err := Kill(t.Context(), directory); err != nil {
		t.Errorf("killing nothing: %v", err)
	}
	first, said := claimant(t, directory)
	if said != "<nil>\n" {
		t.Fatal(said)
	}
	if pid, err := holder(directory); pid != first.Process.Pid || err != nil {
		t.Errorf("holder %d, %v, want %d", pid, err, first.Process.Pid)
	}
	if _, said := claimant(t, directory); said != fmt.Sprintf("claiming %s: %v\n", directory, ErrClaimed) {
		t.Errorf("the second: %s", said)
	}
	if _, err := claim(directory); !errors.Is(err, ErrClaimed) {
		t.Errorf("the third: %v", err)
	}
	// The content of the file does not say which process has the machine.
	if err := os.WriteFile(filepath.Join(directory, claimName), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Kill(t.Context(), directory); err != nil {
		t.Fatal(err)
	}
	state, err := first.Process.Wait()
	if err != nil || state.Success() {
		t.Errorf("%v, %v", state, err)
	}
	if pid, err := holder(directory); pid != 0 || err != nil {
		t.Errorf("after: %d, %v", pid, err)
	}
}

func TestALinkIsNotFollowed(t *testing.T) {
	directory, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(elsewhere, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(directory, claimName)); err != nil {
		t.Fatal(err)
	}
	if _, err := claim(directory); err == nil {
		t.Error("it was claimed")
	}
	if _, err := holder(directory); err == nil {
		t.Error("it was read")
	}
}
