package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kvm-operator/kvm-operator/cmd/runner"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// maxGuestInput bounds standard input of a command in a guest, in bytes: it is one text in a request.
const maxGuestInput = 1 << 20

// exitInterrupted is the exit code after Ctrl-C, as shells have it.
const exitInterrupted = 130

func newSmolVM() *cobra.Command {
	c := &cobra.Command{
		Use:   "smolvm",
		Short: "Look into the machine of a SmolVM",
		Long: `Look into the machine of a SmolVM: find its node and the pod of the runtime there, and run smolvm in that pod.

The user of the kubeconfig has to be allowed to get the SmolVM and its SmolVMNode, and to get the pod and to get and create pods/exec in the
namespace of the runtime. Who may do the latter is root on the nodes: these commands are for administrators.

What guests print goes to files and pipes as it is. A terminal shows their control characters as cat -v does, and does not obey them.`,
		Example: `  kvm-operator smolvm logs web-1 -n team-a --follow
  kvm-operator smolvm exec web-1 -n team-a -- cat /etc/os-release
  kvm-operator smolvm console web-1 -n team-a`,
	}
	c.PersistentFlags().StringP("namespace", "n", "", "namespace of the SmolVM; empty means that of the context")
	c.PersistentFlags().String("kubeconfig", "", "kubeconfig of the management cluster; empty means KUBECONFIG or ~/.kube/config")
	c.PersistentFlags().String("context", "", "context in the kubeconfig; empty means the current one")
	c.AddCommand(newGuestLogs(), newGuestExec(), newGuestConsole())
	return c
}

func newGuestLogs() *cobra.Command {
	c := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print what a machine has printed on its console",
		Long: `Print what the machine of a SmolVM has printed on its console: its kernel, and the image's process. It is kept while the machine is stopped, up to
30 MiB. Ctrl-C ends --follow.`,
		Example: `  kvm-operator smolvm logs web-1 -n team-a
  kvm-operator smolvm logs web-1 -n team-a --tail=20 --follow`,
		Args: cobra.ExactArgs(1),
	}
	follow := c.Flags().BoolP("follow", "f", false, "follow the output, until Ctrl-C")
	tail := c.Flags().Int("tail", 1000, "how many of the last lines")
	c.RunE = withGuest(func(ctx context.Context, c *cobra.Command, g *microVM, _ []string) error {
		if *tail < 0 {
			return &runner.ExitError{Code: exitSettings, Message: "--tail is negative: it is a number of lines"}
		}
		return g.logs(ctx, c, *tail, *follow)
	})
	return c
}

func newGuestConsole() *cobra.Command {
	return &cobra.Command{
		Use:   "console NAME",
		Short: "Watch the console of a machine",
		Long: `Watch the console of the machine of a SmolVM: the last 100 lines, and what it prints from now on, also while it boots again. Ctrl-C ends it. Nothing
can be typed: guests have no login. Run a shell's command with kvm-operator smolvm exec.`,
		Example: `  kvm-operator smolvm console web-1 -n team-a`,
		Args:    cobra.ExactArgs(1),
		RunE: withGuest(func(ctx context.Context, c *cobra.Command, g *microVM, _ []string) error {
			return g.logs(ctx, c, 100, true)
		}),
	}
}

func newGuestExec() *cobra.Command {
	c := &cobra.Command{
		Use:   "exec NAME -- COMMAND [ARGUMENT]...",
		Short: "Run a command in a machine; its exit code is that of this command",
		Long: `Run a command in the machine of a SmolVM, as root, beside the image's process. The exit code is the command's: 124 after the time is up, 126 if it cannot be
executed, 127 if it is not found. Ctrl-C ends the command in the machine, too. It has no terminal.`,
		Example: `  kvm-operator smolvm exec web-1 -n team-a -- cat /etc/os-release
  echo hello | kvm-operator smolvm exec web-1 -n team-a --stdin --timeout=10 -- sh -c 'cat > /storage/greeting'`,
		Args: cobra.MinimumNArgs(2),
	}
	stdin := c.Flags().BoolP("stdin", "i", false, "pass standard input, up to 1 MiB")
	c.Flags().StringArray("env", nil, "NAME=VALUE: add to the environment")
	c.Flags().String("workdir", "", "working directory")
	c.Flags().Int64("timeout", 0, "seconds after which the command is killed; 0 for no limit")
	c.RunE = withGuest(func(ctx context.Context, c *cobra.Command, g *microVM, command []string) error {
		if err := g.mustRun(); err != nil {
			return err
		}
		options := execOptions(c.Flags())
		var input []byte
		if *stdin {
			var err error
			if input, err = readInput(c.InOrStdin()); err != nil {
				return err
			}
			options = append(options, "--stdin-bytes="+strconv.Itoa(len(input)))
		}
		err := g.run(ctx, c, slices.Concat([]string{"exec", "--attended"}, options, []string{g.machine, "--"}, command), input)
		if err != nil && ctx.Err() != nil {
			return &runner.ExitError{Code: exitInterrupted}
		}
		return err
	})
	return c
}

// execOptions returns the flags of smolvm machine exec that have the same names here.
func execOptions(fs *pflag.FlagSet) (options []string) {
	variables, err := fs.GetStringArray("env")
	must(err)
	for _, variable := range variables {
		options = append(options, "--env="+variable)
	}
	for _, name := range []string{"workdir", "timeout"} {
		if f := fs.Lookup(name); f.Changed {
			options = append(options, "--"+name+"="+f.Value.String())
		}
	}
	return options
}

// readInput reads all of standard input, before anything runs.
func readInput(in io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxGuestInput+1))
	if err == nil && len(text) > maxGuestInput {
		err = errors.New("standard input has more than 1 MiB: let the machine fetch it")
	}
	return text, err
}

// withGuest makes a command of what is done with the machine of a SmolVM, which the first argument names. The first Ctrl-C
// ends its context, and the second one the program.
func withGuest(do func(ctx context.Context, c *cobra.Command, g *microVM, rest []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, arguments []string) error {
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		config, namespace, err := kubeconfigOf(c)
		if err != nil {
			return &runner.ExitError{Code: exitSettings, Message: err.Error()}
		}
		g, err := findGuest(ctx, config, namespace, arguments[0])
		if err != nil {
			return plainly(err)
		}
		return plainly(do(ctx, c, g, arguments[1:]))
	}
}

// kubeconfigOf returns what the flags choose, as kubectl does.
func kubeconfigOf(c *cobra.Command) (clientcmd.ClientConfig, string, error) {
	text := func(name string) string {
		value, err := c.Flags().GetString(name)
		must(err) // they are registered above
		return value
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = text("kubeconfig")
	overrides := &clientcmd.ConfigOverrides{CurrentContext: text("context")}
	overrides.Context.Namespace = text("namespace")
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return config, namespace, nil
}

// mustRun returns an error if the machine is not to run, or does not: a command would start it against its spec.
func (g *microVM) mustRun() error {
	if g.vm.Spec.Running && g.vm.Status.Phase == v1alpha1.PhaseRunning {
		return nil
	}
	way := fmt.Sprintf("kubectl -n %s get smolvm %s -o wide says what it waits for", g.vm.Namespace, g.vm.Name)
	if !g.vm.Spec.Running {
		way = fmt.Sprintf(`start it with kubectl -n %s patch smolvm %s --type=merge -p '{"spec":{"running":true}}'`, g.vm.Namespace, g.vm.Name)
	}
	return fmt.Errorf("SmolVM %s/%s does not run: its phase is %s; %s", g.vm.Namespace, g.vm.Name, g.vm.Status.Phase, way)
}
