package runnerimage_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// The timeouts are for a machine whose cores are shared with others. They end tests that hang, not slow ones.
const (
	buildTimeout = 10 * time.Minute
	bootTimeout  = 2 * time.Minute
	helpTimeout  = time.Minute
)

func TestTheSameSourcesMakeTheSameImage(t *testing.T) {
	one, other := build(t, "022"), build(t, "077")
	ofAll(t, func(t *testing.T, p *product) {
		var content [3][]byte
		for i, path := range []string{filepath.Join(one, p.archive), filepath.Join(other, p.archive), p.path()} {
			var err error
			if content[i], err = os.ReadFile(path); err != nil {
				t.Fatalf("%s; run `make tools`", err)
			}
		}
		if !bytes.Equal(content[0], content[1]) {
			t.Fatal("build.sh made two images that differ; did the sources change in between?")
		}
		if !bytes.Equal(content[0], content[2]) {
			t.Errorf("%s is not of these sources, other tests here have tested an old one: run `make tools`", p.path())
		}
	})
}

// build runs build.sh with a user's umask and returns the directory with the archives.
func build(t *testing.T, umask string) string {
	t.Helper()
	directory := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, "sh", "-c", `umask "$1" && exec ./build.sh "$2"`, "sh", umask, directory)
	guests, err := filepath.Abs(checkout + "/.tools/guest")
	if err != nil {
		t.Fatal(err)
	}
	command.Env = append(os.Environ(), "GUESTS="+guests)
	// Like Ctrl-C, this makes the script clean up.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGINT) }
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %s\n%s", err, output)
	}
	return directory
}
