package smolvm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

func newExec() *cobra.Command {
	c := &cobra.Command{
		Use:   "exec NAME -- COMMAND [ARGUMENT]...",
		Short: "Run a command in a guest; its exit code is that of this command",
		Long: `Run a command in a guest, which is started if it does not run. The exit code is the command's: 124 after the time is up, 126 if it
cannot be executed, 127 if it is not found.`,
		Example: `  smolvm machine exec web -- cat /etc/os-release
  echo hello | smolvm machine exec web --stdin --timeout=10 -- sh -c 'cat > /storage/greeting'`,
		Args: cobra.MinimumNArgs(2),
		RunE: asking(func(ctx context.Context, c *cobra.Command, a *api.Client, arguments []string) error {
			request := api.ExecRequest{Command: arguments[1:]}
			var errs [4]error
			request.Env, errs[0] = variables(c)
			request.Workdir, errs[1] = c.Flags().GetString("workdir")
			if c.Flags().Changed("timeout") {
				request.TimeoutSecs, errs[2] = number(c, "timeout")
			}
			request.Stdin, errs[3] = stdinOf(c)
			if err := errors.Join(errs[:]...); err != nil {
				return &ExitError{Code: 2, Err: err}
			}
			ctx, release := attended(ctx, c)
			defer release()
			code, err := a.ExecStream(ctx, arguments[0], request, c.OutOrStdout(), c.ErrOrStderr())
			if err != nil {
				return err
			}
			if code != 0 {
				return &ExitError{Code: code}
			}
			return nil
		}),
	}
	c.Flags().StringArray("env", nil, "NAME=VALUE: add to the environment")
	c.Flags().String("workdir", "", "working directory")
	c.Flags().Int64("timeout", 0, "seconds after which the command is killed")
	c.Flags().BoolP("stdin", "i", false, "pass standard input, up to 1 MiB")
	c.Flags().Int("stdin-bytes", 0, "pass only that many bytes of standard input")
	addAttended(c)
	return c
}

func addAttended(c *cobra.Command) {
	c.Flags().Bool("attended", false, "end when standard input ends, such as when a remote connection is lost")
}

// attended returns a context that ends with standard input, if that is wanted.
func attended(ctx context.Context, c *cobra.Command) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if yes, err := c.Flags().GetBool("attended"); yes && err == nil {
		go func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, c.InOrStdin()) // whatever ends it
		}()
	}
	return ctx, cancel
}

// stdinOf returns the input of a command.
func stdinOf(c *cobra.Command) (string, error) {
	size, err := c.Flags().GetInt("stdin-bytes")
	if err != nil {
		return "", err
	}
	if size < 0 || size > maxInput {
		return "", fmt.Errorf("--stdin-bytes is %d, and has to be 0 to %d", size, maxInput)
	}
	if size > 0 {
		text := make([]byte, size)
		if _, err := io.ReadFull(c.InOrStdin(), text); err != nil {
			return "", fmt.Errorf("reading %d bytes of standard input: %w", size, err)
		}
		return string(text), nil
	}
	if yes, err := c.Flags().GetBool("stdin"); !yes || err != nil {
		return "", err
	}
	return input(c.InOrStdin())
}

// maxInput bounds standard input in bytes: it is one text in a request.
const maxInput = 1 << 20

func input(in io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err == nil && len(text) > maxInput {
		err = errors.New("standard input is larger than 1 MiB: copy a file with smolvm machine cp instead")
	}
	return string(text), err
}

func newLogs() *cobra.Command {
	c := &cobra.Command{
		Use: "logs NAME", Short: "Print what the guest printed on its console", Args: cobra.ExactArgs(1),
		RunE: asking(func(ctx context.Context, c *cobra.Command, a *api.Client, arguments []string) error {
			follow, err := c.Flags().GetBool("follow")
			if err != nil {
				return err
			}
			tail, err := c.Flags().GetInt("tail")
			if err != nil {
				return err
			}
			ctx, release := attended(ctx, c)
			defer release()
			err = a.Logs(ctx, arguments[0], api.LogsOptions{Tail: &tail, Follow: follow}, c.OutOrStdout())
			if ctx.Err() != nil && follow {
				return nil
			}
			return err
		}),
	}
	c.Flags().BoolP("follow", "f", false, "follow the output")
	c.Flags().Int("tail", 1000, "how many of the last lines")
	addAttended(c)
	return c
}

func newCopy() *cobra.Command {
	return &cobra.Command{
		Use: "cp FROM TO", Short: "Copy a file from or to a guest; NAME:/PATH is one in a guest", Args: cobra.ExactArgs(2),
		Example: `  smolvm machine cp web:/etc/nginx/nginx.conf nginx.conf
  smolvm machine cp index.html web:/usr/share/nginx/html/index.html`,
		RunE: asking(func(ctx context.Context, c *cobra.Command, a *api.Client, arguments []string) error {
			fromName, fromPath, from := guestPath(arguments[0])
			toName, toPath, to := guestPath(arguments[1])
			switch {
			case from && !to:
				return download(ctx, a, fromName, fromPath, arguments[1])
			case to && !from:
				return upload(ctx, c, a, toName, toPath, arguments[0])
			}
			return &ExitError{Code: 2, Err: errors.New("one of the two has to be NAME:/PATH, a file in a guest, and the other one a file of this host")}
		}),
	}
}

func guestPath(text string) (name, path string, ok bool) {
	name, path, ok = strings.Cut(text, ":")
	return name, path, ok && strings.HasPrefix(path, "/") && !strings.Contains(name, "/")
}

// download writes a temporary file first, so that a partial file is never taken for a complete one.
func download(ctx context.Context, a *api.Client, name, path, to string) (err error) {
	temporary := to + ".part"
	file, err := os.Create(temporary)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary)
		}
	}()
	if err := errors.Join(a.ReadFile(ctx, name, path, file), file.Close()); err != nil {
		return err
	}
	return os.Rename(temporary, to)
}

func upload(ctx context.Context, c *cobra.Command, a *api.Client, name, path, from string) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	written, err := a.WriteFile(ctx, name, path, file)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s in machine %s has %d bytes\n", written.Path, name, written.Size)
	return err
}
