package contract_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// startSmolvm starts the program that SMOLVM_BIN names, with its state in a directory of the test.
func startSmolvm(t *testing.T) Target {
	t.Helper()
	directory := t.TempDir()
	address := "unix://" + filepath.Join(directory, "smolvm.sock")
	start := func() (stop func(os.Signal)) {
		program := exec.Command(os.Getenv("SMOLVM_BIN"), "serve", "start", "--listen", address)
		program.Env = append(os.Environ(), "HOME="+directory, "SMOLVM_DATA_DIR="+directory, "XDG_RUNTIME_DIR="+directory,
			"XDG_CACHE_HOME="+filepath.Join(directory, "cache"), "XDG_DATA_HOME="+filepath.Join(directory, "data"))
		return serve(t, program, directory, address)
	}
	stop := start()
	t.Cleanup(func() { stop(syscall.SIGTERM) })
	target := Target{
		Kind: kindSmolvm, Address: address, Shell: os.Getenv("SMOLVM_SHELL_IMAGE"), Web: os.Getenv("SMOLVM_WEB_IMAGE"),
		Host: "127.0.0.1", Patience: time.Minute,
	}
	// libkrun boots nothing without KVM, and nothing pulls an image without a registry.
	if device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
		device.Close()
		target.Boots = target.Shell != "" && target.Web != ""
		target.Starts = target.Boots
	}
	target.Restart = func(t *testing.T) {
		t.Helper()
		// A clean end stops the machines of smolvm.
		stop(syscall.SIGKILL)
		stop = start()
	}
	return target
}

// serve starts a server and returns what ends it. Its log is in the directory.
func serve(t *testing.T, program *exec.Cmd, directory, address string) (stop func(os.Signal)) {
	t.Helper()
	log, err := os.CreateTemp(directory, "log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	program.Stdout, program.Stderr = log, log
	if err := program.Start(); err != nil {
		t.Fatalf("starting %s: %v", program.Path, err)
	}
	ended := make(chan struct{})
	go func() { _ = program.Wait(); close(ended) }()
	stop = func(signal os.Signal) {
		_ = program.Process.Signal(signal)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			_ = program.Process.Kill()
			<-ended
		}
	}
	c, err := api.NewClient(address, api.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	late := time.After(time.Minute)
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := c.Health(ctx)
		cancel()
		if err == nil {
			return stop
		}
		select {
		case <-ended:
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("%s ended: %.2000s", program.Path, said)
		case <-late:
			stop(syscall.SIGKILL)
			t.Fatalf("%s does not answer: %v", program.Path, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
