// Package smolvm holds the commands of smolvm: the server of its HTTP API on QEMU, its client, and the process of one
// machine.
package smolvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kvm-operator/kvm-operator/pkg/project"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// ExitError ends the program with an exit code.
type ExitError struct {
	// Code is the exit code, not 0.
	Code int
	// Err is printed; nil for nothing.
	Err error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Execute runs a command until it ends or is interrupted, prints its error to stderr and returns the exit code of the
// program: 2 for a wrong command line.
func Execute(c *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := c.ExecuteContext(ctx)
	var exit *ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if exit.Err != nil {
			fmt.Fprintln(os.Stderr, "error:", exit.Err)
		}
		return exit.Code
	case ctx.Err() != nil:
		return 130 // as a shell has it for Ctrl-C
	}
	fmt.Fprintln(os.Stderr, "error:", err)
	return 1
}

// New returns the command smolvm.
func New() *cobra.Command {
	c := &cobra.Command{
		Use:   "smolvm",
		Short: "Run machines from container images with QEMU",
		Long: `Run machines from container images with QEMU. smolvm serve start serves smolvm's HTTP API on this host, and smolvm machine talks to it.

This is kvm-operator's implementation of the API of smolvm (github.com/smol-machines/smolvm). It is not smolvm, and shares no code with it.`,
		Example: `  # a server, which keeps everything below ./try
  smolvm serve start --state=try --listen=unix://try/smolvm.sock --allow-emulation

  # a machine that answers on a port of this host, from another terminal
  export SMOLVM_HOST=unix://try/smolvm.sock
  smolvm machine create web --image=nginx:1.27-alpine --port=8080:80 --network
  smolvm machine start web
  curl http://127.0.0.1:8080`,
		Version:      project.Version(),
		SilenceUsage: true, SilenceErrors: true,
	}
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &ExitError{Code: 2, Err: fmt.Errorf("%w; see %s --help", err, c.CommandPath())}
	})
	c.AddCommand(newServe(), newMachine(), newDrain(), newKeeper())
	return c
}

// defaultAddress is where the server listens and the client asks.
func defaultAddress() string {
	if os.Geteuid() == 0 {
		return "unix:///var/run/smolvm/smolvm.sock"
	}
	return api.DefaultAddress()
}

// defaultState is the server's directory.
func defaultState() string {
	if os.Geteuid() == 0 {
		return "/var/lib/smolvm"
	}
	if directory := os.Getenv("XDG_DATA_HOME"); directory != "" {
		return filepath.Join(directory, "smolvm")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = os.TempDir()
	}
	return filepath.Join(home, ".local", "share", "smolvm")
}

// environment returns a variable of the environment, or another value if that is not set.
func environment(name, otherwise string) string {
	if value, ok := os.LookupEnv(name); ok {
		return value
	}
	return otherwise
}
