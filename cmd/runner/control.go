package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func newRelease() *cobra.Command {
	return &cobra.Command{
		Use:   "release",
		Short: "Release a machine that is kept running after SIGTERM",
		Long: `Release a machine. After SIGTERM, the runner keeps its machine running for --hold-timeout, so that its workload can be drained;
a released machine is powered down at once. A machine that is released before SIGTERM is not kept running.`,
		Example: "  kvm-operator runner release",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return client(c).Release(c.Context()) },
	}
}

func newQMP() *cobra.Command {
	return &cobra.Command{
		Use:   "qmp <command>",
		Short: "Send a command to QEMU's monitor and print what it answers",
		Long: `Send a command to QEMU's monitor and print what it answers. Commands are those of the QEMU Machine Protocol,
https://www.qemu.org/docs/master/interop/qemu-qmp-ref.html. The runner does not notice what they change.`,
		Example: `  kvm-operator runner qmp '{"execute":"query-status"}'
  kvm-operator runner qmp '{"execute":"system_reset"}'`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			result, err := client(c).QMP(c.Context(), []byte(args[0]))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s", result)
			return err
		},
	}
}

// escape is Ctrl-], as in telnet. No guest needs it.
const escape = 0x1d

func newConsole() *cobra.Command {
	c := &cobra.Command{
		Use:   "console",
		Short: "Attach to the guest's serial console",
		Long: `Attach to the guest's serial console: show the last 64 KiB and what follows, and type what is typed here. Ctrl-] ends it.
Several people may be attached at once.`,
		Example: `  kvm-operator runner console
  kvm-operator runner console --tail            # what it has printed last, for a script
  kvm-operator runner console --type=reboot     # type a line, for a script
  kubectl -n <id> exec -it deploy/worker-<nodeID> -- /opt/kvm-operator/kvm-operator runner console
  kubectl exec -it <vm>-0 -- /opt/kvm-operator/kvm-operator runner console`,
		Args: cobra.NoArgs,
	}
	tail := c.Flags().Bool("tail", false, "print the last 64 KiB and end")
	line := c.Flags().String("type", "", "type a line and end")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if c.Flags().Changed("type") {
			return client(c).Type(c.Context(), *line+"\n")
		}
		if *tail {
			text, err := client(c).Console(c.Context())
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		}
		return attach(c)
	}
	return c
}

func attach(c *cobra.Command) error {
	console, err := client(c).Attach(c.Context())
	if err != nil {
		return err
	}
	defer func() { _ = console.Close() }()
	if restore := raw(os.Stdin); restore != nil {
		defer restore()
		fmt.Fprint(c.ErrOrStderr(), "attached, Ctrl-] detaches\r\n")
	}
	ended := make(chan error, 2)
	go func() { _, err := io.Copy(c.OutOrStdout(), console); ended <- err }()
	go func() {
		if err := typeUntilEscape(console, c.InOrStdin()); !errors.Is(err, io.EOF) {
			ended <- err
		}
	}()
	select {
	case err := <-ended:
		return err
	case <-c.Context().Done():
		return nil
	}
}

// typeUntilEscape copies keystrokes to the console. It returns io.EOF when the input ends, as a script's input does.
// The console then stays attached.
func typeUntilEscape(console io.Writer, input io.Reader) error {
	buffer := make([]byte, 1024)
	for {
		n, err := input.Read(buffer)
		typed, _, escaped := bytes.Cut(buffer[:n], []byte{escape})
		if _, err := console.Write(typed); err != nil {
			return err
		}
		if escaped || err != nil {
			return err
		}
	}
}
