package smolvm

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/instance"
)

// newKeeper returns the command that the server runs for each machine.
func newKeeper() *cobra.Command {
	var descriptor int
	c := &cobra.Command{
		Use:    "keeper DIRECTORY",
		Short:  "Keep the machine of a directory; started by smolvm serve start",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			debug.SetGCPercent(25) // there is one of these for each machine
			// The host's shutdown, or the server's cgroup, ends it by SIGTERM: then the guest is powered down.
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
			defer stop()
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			var lock *os.File
			if descriptor > 0 {
				syscall.CloseOnExec(descriptor) // QEMU gets it by another number
				lock = os.NewFile(uintptr(descriptor), "lock")
			}
			return instance.Keep(ctx, arguments[0], lock)
		},
	}
	c.Flags().IntVar(&descriptor, "lock", 0, "file descriptor of the directory's lock; 0 to take it")
	return c
}
