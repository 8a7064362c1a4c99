// Package runner holds the commands that are PID 1 of a node pod and of the pod of a virtual machine, and the commands
// that talk to them.
package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/noderunner"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// ExitError ends the program with an exit code that identifies the reason.
type ExitError struct {
	// Code is the exit code, not 0.
	Code int
	// Message is for a person; empty if what has failed has said so.
	Message string
}

func (e *ExitError) Error() string { return e.Message }

// Execute runs a command, prints its error to stderr and returns the exit code of the program.
func Execute(c *cobra.Command) int {
	err := c.Execute()
	if err == nil {
		return 0
	}
	var exit *ExitError
	if errors.As(err, &exit) && exit.Message == "" {
		return exit.Code
	}
	// There may be no reader of stderr; see keeper.Outlet.
	out := keeper.NewOutlet(os.Stderr)
	fmt.Fprintln(out, "error:", err)
	_ = out.Close()
	if exit != nil {
		return exit.Code
	}
	return 1
}

// New returns the command runner.
func New() *cobra.Command {
	c := &cobra.Command{
		Use:   "runner",
		Short: "Run the virtual machine of a node; PID 1 of a node pod",
		Long: `Run the virtual machine of a node of a workload cluster: merge its boot data, get its image, make its disks, give it the address of the pod, start QEMU,
supervise it, and shut the guest down after SIGTERM.

Every flag can be set by the variable of the environment that its description names. Node pods are configured that way.`,
		Example: `  # a machine behind QEMU's own network, which needs only QEMU and boot data
  kvm-operator runner --name=try --cpus=2 --memory=3072M --boot-data=user_data --network=user \
    --flatcar-version=4459.2.1 --disk=rootfs:5G --images=$HOME/.cache/images --state=try --run=try/run

  # its state, from another terminal
  kvm-operator runner status --run=try/run`,
		Args:         cobra.NoArgs,
		RunE:         func(c *cobra.Command, _ []string) error { return run(c) },
		SilenceUsage: true, SilenceErrors: true,
	}
	c.PersistentFlags().String("run", "/run/kvm-operator", "directory of the runner's sockets")
	register(c.Flags())
	c.AddCommand(newVM(), newImage(), newStatus(), newRelease(), newQMP(), newConsole(), newLink(), newEtcdSnapshot(), newEtcdData())
	return c
}

func run(c *cobra.Command) error {
	settings, err := load(c.Flags(), os.LookupEnv)
	if err != nil {
		return refuse(settings.TerminationLog, err)
	}
	return keep(c, func(log *slog.Logger, console, messages io.Writer) machine {
		return noderunner.New(settings, log, console, messages)
	})
}

// refuse ends the program because of its settings.
func refuse(terminationLog string, err error) error {
	end := keeper.End{Reason: keeper.ReasonSettingsInvalid, Message: err.Error()}
	return errorOf(end, keeper.WriteTermination(terminationLog, end, nil))
}

// machine is one of any kind.
type machine interface {
	Run(ctx context.Context) keeper.End
}

// keep runs a machine until it ends.
func keep(c *cobra.Command, newMachine func(log *slog.Logger, console, messages io.Writer) machine) error {
	// The runner shares its memory with the machine, so memory that only the start needs is freed soon.
	debug.SetGCPercent(25)
	// These signals must not end the runner as they end other programs because QEMU would end with it, without a signal
	// to the guest.
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if os.Getpid() == 1 {
		go ReapOrphans(c.Context())
	}
	messages, console := keeper.NewOutlet(c.ErrOrStderr()), keeper.NewOutlet(c.OutOrStdout())
	defer func() { _ = errors.Join(messages.Close(), console.Close()) }()
	log := slog.New(slog.NewTextHandler(messages, nil))
	end := newMachine(log, console, messages).Run(ctx)
	log.Info("The machine has ended", "reason", end.Reason, "message", end.Message)
	return errorOf(end, nil)
}

// errorOf returns the error that ends the program. It is nil when nothing went wrong.
func errorOf(end keeper.End, further error) error {
	if end.Reason.ExitCode() == 0 {
		return further
	}
	message := fmt.Sprintf("%s: %s", end.Reason, end.Message)
	if further != nil {
		message += "; " + further.Error()
	}
	return &ExitError{Code: end.Reason.ExitCode(), Message: message}
}
