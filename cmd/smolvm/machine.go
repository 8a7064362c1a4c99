package smolvm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

func newMachine() *cobra.Command {
	c := &cobra.Command{
		Use:     "machine",
		Aliases: []string{"machines"},
		Short:   "Create, start, inspect and delete machines",
		Example: `  smolvm machine create web --image=nginx:1.27-alpine --port=8080:80 --network
  smolvm machine start web
  smolvm machine exec web -- cat /etc/os-release
  smolvm machine logs web --follow
  smolvm machine stop web && smolvm machine resize web --storage=40 && smolvm machine start web
  smolvm machine delete web`,
	}
	addHost(c)
	c.AddCommand(newList(), newStatus(), newCreate(), newStart(), newStop(), newDelete(), newExec(), newLogs(), newResize(), newCopy())
	return c
}

func addHost(c *cobra.Command) {
	c.PersistentFlags().String("host", environment("SMOLVM_HOST", defaultAddress()), "address of the server (SMOLVM_HOST)")
}

func newDrain() *cobra.Command {
	c := &cobra.Command{
		Use: "drain", Short: "Shut all machines down", Args: cobra.NoArgs,
		RunE: asking(func(ctx context.Context, c *cobra.Command, a *api.Client, _ []string) error {
			return telling(c, "shutting all machines down", func() error { return a.Drain(ctx) })
		}),
	}
	addHost(c)
	return c
}

// asking makes a command of what asks the server.
func asking(do func(ctx context.Context, c *cobra.Command, a *api.Client, arguments []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, arguments []string) error {
		host, err := c.Flags().GetString("host")
		if err != nil {
			return err
		}
		a, err := api.NewClient(host, api.Options{})
		if err != nil {
			return &ExitError{Code: 2, Err: err}
		}
		defer a.Close()
		err = do(c.Context(), c, a, arguments)
		if errors.Is(err, os.ErrNotExist) || strings.Contains(fmt.Sprint(err), "connection refused") {
			return fmt.Errorf("%w; is the server running? Start one with smolvm serve start, or name it with --host or SMOLVM_HOST", err)
		}
		return err
	}
}

// tellEvery is how often a command that takes longer says that it still waits.
const tellEvery = 2 * time.Second

// telling does what may take long, and says so on stderr.
func telling(c *cobra.Command, what string, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for begin := time.Now(); ; {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", what, time.Since(begin).Round(time.Second))
		}
	}
}

func newList() *cobra.Command {
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List machines", Args: cobra.NoArgs,
		RunE: asking(func(ctx context.Context, c *cobra.Command, a *api.Client, _ []string) error {
			machines, err := a.List(ctx)
			if err != nil {
				return err
			}
			if asJSON(c) {
				return printJSON(c.OutOrStdout(), api.Machines{Machines: machines})
			}
			return printTable(c.OutOrStdout(), machines)
		}),
	}
	c.Flags().Bool("json", false, "print JSON")
	return c
}

func asJSON(c *cobra.Command) bool {
	yes, err := c.Flags().GetBool("json")
	return err == nil && yes
}

func printJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func printTable(out io.Writer, machines []api.Machine) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "NAME\tSTATE\tCPUS\tMEMORY\tPORTS\tIMAGE\tAGE")
	for _, m := range machines {
		var ports []string
		for _, p := range m.Ports {
			ports = append(ports, fmt.Sprintf("%d:%d", p.Host, p.Guest))
		}
		age := time.Since(time.Unix(m.CreatedAt, 0)).Round(time.Second)
		_, _ = fmt.Fprintf(table, "%s\t%s\t%d\t%dMi\t%s\t%s\t%s\n", m.Name, m.State, m.CPUs, m.MemoryMB, cmp.Or(strings.Join(ports, ","), "-"), cmp.Or(m.Image, m.From, "-"), age)
	}
	return table.Flush()
}

func newStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status NAME", Short: "Print all that is known of a machine, as JSON", Args: cobra.ExactArgs(1),
		RunE: asking(func(ctx context.Context, c *cobra.Command, a *api.Client, arguments []string) error {
			m, err := a.Get(ctx, arguments[0])
			if err != nil {
				return err
			}
			return printJSON(c.OutOrStdout(), m)
		}),
	}
}

func newCreate() *cobra.Command {
	c := &cobra.Command{
		Use:   "create NAME [-- COMMAND [ARGUMENT]...]",
		Short: "Create a machine, which does not run yet",
		Long: `Create a machine from a container image, or from a packed machine of smolvm. It does not run yet. The command after -- replaces the image's; its entrypoint stays.
The same command again does nothing.`,
		Example: `  smolvm machine create web --image=nginx:1.27-alpine --port=8080:80 --cpus=2 --memory=1024
  smolvm machine create job --image=docker.io/library/alpine:3.22 --network --allow=192.0.2.0/24 -- sleep infinity
  smolvm machine create packed --from=/var/lib/smolvm/artifacts/web.smolmachine`,
		Args: cobra.MinimumNArgs(1),
		RunE: asking(func(ctx context.Context, c *cobra.Command, a *api.Client, arguments []string) error {
			request, err := createRequest(c, arguments)
			if err != nil {
				return &ExitError{Code: 2, Err: err}
			}
			m, err := a.Create(ctx, request)
			return report(c, m, err)
		}),
	}
	f := c.Flags()
	f.String("image", "", "container image; it or --from is required")
	f.String("from", "", "path of a .smolmachine file on the server's host, below artifacts in the state directory")
	f.Int("cpus", api.DefaultCPUs, "processors; with --from, those of the file unless it is given")
	f.Int64("memory", api.DefaultMemoryMB, "memory in MiB; with --from, that of the file unless it is given")
	f.Int64("storage", api.DefaultStorageGB, "size in GiB of the disk at /storage")
	f.Int64("overlay", api.DefaultOverlayGB, "size in GiB of the disk for changes to the image")
	f.StringSlice("port", nil, "HOST:GUEST: publish a TCP port of the guest")
	f.Bool("network", false, "let the guest reach others")
	f.StringSlice("allow", nil, "the only networks that the guest reaches, as CIDR; needs --network")
	f.StringArray("env", nil, "NAME=VALUE: add to the environment")
	f.String("workdir", "", "working directory instead of the image's")
	f.StringArray("entrypoint", nil, "program and arguments instead of the image's entrypoint, one a flag")
	f.String("restart", api.RestartNever, "never, on-failure, always or unless-stopped: whether a machine that ends by itself is started again")
	return c
}

func createRequest(c *cobra.Command, arguments []string) (api.CreateRequest, error) {
	f := c.Flags()
	r := api.CreateRequest{Name: arguments[0], Cmd: arguments[1:]}
	var errs [13]error
	r.Image, errs[0] = f.GetString("image")
	r.Network, errs[1] = f.GetBool("network")
	r.Entrypoint, errs[2] = f.GetStringArray("entrypoint")
	r.Workdir, errs[3] = f.GetString("workdir")
	r.Ports, errs[4] = ports(c)
	r.Env, errs[5] = variables(c)
	r.From, errs[12] = f.GetString("from")
	if r.From == "" || f.Changed("cpus") {
		cpus, err := f.GetInt("cpus")
		r.CPUs, errs[6] = &cpus, err
	}
	if r.From == "" || f.Changed("memory") {
		r.MemoryMB, errs[7] = number(c, "memory")
	}
	r.StorageGB, errs[8] = number(c, "storage")
	r.OverlayGB, errs[9] = number(c, "overlay")
	if f.Changed("allow") {
		allowed, err := f.GetStringSlice("allow")
		r.AllowedCIDRs, errs[10] = &allowed, err
	}
	policy, err := f.GetString("restart")
	r.Restart, errs[11] = &api.Restart{Policy: policy}, err
	return r, errors.Join(errs[:]...)
}

func number(c *cobra.Command, flag string) (*int64, error) {
	value, err := c.Flags().GetInt64(flag)
	return &value, err
}

func ports(c *cobra.Command) ([]api.Port, error) {
	texts, err := c.Flags().GetStringSlice("port")
	if err != nil {
		return nil, err
	}
	var found []api.Port
	for _, text := range texts {
		host, guest, ok := strings.Cut(text, ":")
		h, errHost := strconv.ParseUint(host, 10, 16)
		g, errGuest := strconv.ParseUint(guest, 10, 16)
		if !ok || errHost != nil || errGuest != nil {
			return nil, fmt.Errorf("--port=%s is not HOST:GUEST, two numbers from 1 to 65535", text)
		}
		found = append(found, api.Port{Host: uint16(h), Guest: uint16(g)})
	}
	return found, nil
}

func variables(c *cobra.Command) ([]api.EnvVar, error) {
	texts, err := c.Flags().GetStringArray("env")
	if err != nil {
		return nil, err
	}
	var found []api.EnvVar
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("--env=%s is not NAME=VALUE", text)
		}
		found = append(found, api.EnvVar{Name: name, Value: value})
	}
	return found, nil
}

// report prints the new state of a machine.
func report(c *cobra.Command, m api.Machine, err error) error {
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "machine %s is %s\n", m.Name, m.State)
	return err
}

func newStart() *cobra.Command {
	c := &cobra.Command{
		Use: "start NAME", Short: "Start a machine, and wait until its guest answers", Args: cobra.ExactArgs(1),
		Long: `Start a machine, and wait until its guest answers. The image is pulled by the server if it is not there. The password for a private
registry is read from the variable SMOLVM_REGISTRY_PASSWORD.`,
		RunE: asking(func(ctx context.Context, c *cobra.Command, a *api.Client, arguments []string) error {
			user, err := c.Flags().GetString("registry-user")
			if err != nil {
				return err
			}
			var request api.StartRequest
			if user != "" {
				request.RegistryAuth = &api.RegistryAuth{Username: user, Password: os.Getenv("SMOLVM_REGISTRY_PASSWORD")}
			}
			var m api.Machine
			err = telling(c, "starting "+arguments[0], func() (err error) { m, err = a.Start(ctx, arguments[0], request); return err })
			return report(c, m, err)
		}),
	}
	c.Flags().String("registry-user", "", "user for the image's registry, for this start alone")
	return c
}

func newStop() *cobra.Command {
	return &cobra.Command{
		Use: "stop NAME", Short: "Shut a machine down", Args: cobra.ExactArgs(1),
		RunE: asking(func(ctx context.Context, c *cobra.Command, a *api.Client, arguments []string) error {
			var m api.Machine
			err := telling(c, "stopping "+arguments[0], func() (err error) { m, err = a.Stop(ctx, arguments[0]); return err })
			return report(c, m, err)
		}),
	}
}

func newDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Delete a machine with its disks", Args: cobra.ExactArgs(1),
		RunE: asking(func(ctx context.Context, c *cobra.Command, a *api.Client, arguments []string) error {
			if err := telling(c, "deleting "+arguments[0], func() error { return a.Delete(ctx, arguments[0]) }); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "machine %s is deleted\n", arguments[0])
			return err
		}),
	}
}

func newResize() *cobra.Command {
	c := &cobra.Command{
		Use: "resize NAME", Short: "Make the disks of a stopped machine larger", Args: cobra.ExactArgs(1),
		Example: `  smolvm machine resize web --storage=40`,
		RunE: asking(func(ctx context.Context, c *cobra.Command, a *api.Client, arguments []string) error {
			var r api.ResizeRequest
			var errStorage, errOverlay error
			if c.Flags().Changed("storage") {
				r.StorageGB, errStorage = number(c, "storage")
			}
			if c.Flags().Changed("overlay") {
				r.OverlayGB, errOverlay = number(c, "overlay")
			}
			if err := errors.Join(errStorage, errOverlay); err != nil {
				return err
			}
			m, err := a.Resize(ctx, arguments[0], r)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "machine %s has %d GiB of storage and %d GiB of overlay\n", m.Name, m.StorageGB, m.OverlayGB)
			return err
		}),
	}
	c.Flags().Int64("storage", 0, "new size in GiB of the disk at /storage")
	c.Flags().Int64("overlay", 0, "new size in GiB of the disk for changes to the image")
	return c
}
