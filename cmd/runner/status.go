package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/noderunner"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// unhealthy is the exit code for a machine that is not in the requested state.
const unhealthy = 1

func newStatus() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Print the state of the machine; fails when it is not ready",
		Long: `Print the state of the machine. The command fails when the machine is not ready for work: QEMU does not run it, it is
parked, the kubelet in a node is not healthy, or the API server of a master is not ready. With --live it fails only when the machine has to be restarted.`,
		Example: `  kvm-operator runner status
  kubectl -n <id> exec deploy/worker-<nodeID> -- /opt/kvm-operator/kvm-operator runner status --output=json`,
		Args: cobra.NoArgs,
	}
	live := c.Flags().Bool("live", false, "check whether the machine is alive instead of whether it is ready")
	output := c.Flags().StringP("output", "o", "text", "text or json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		// This is shorter than the timeout of a probe, so the probe gets a reason.
		ctx, cancel := context.WithTimeout(c.Context(), 4500*time.Millisecond)
		defer cancel()
		var status noderunner.Status
		if err := client(c).Status(ctx, &status); err != nil {
			return err
		}
		if err := show(c.OutOrStdout(), *output, status); err != nil {
			return err
		}
		if *live && status.Live || !*live && status.Ready {
			return nil
		}
		return &ExitError{Code: unhealthy, Message: "the machine is not healthy: " + status.Unready}
	}
	return c
}

func client(c *cobra.Command) keeper.Client {
	return keeper.Client{Socket: filepath.Join(must(c.Flags().GetString("run")), keeper.SocketName)}
}

func show(out io.Writer, format string, status noderunner.Status) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(status)
	case "text":
		return showText(out, status)
	}
	return fmt.Errorf("--output: %q is neither text nor json", format)
}

func showText(out io.Writer, s noderunner.Status) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if strings.TrimSpace(value) != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	row("machine", s.Name)
	row("state", fmt.Sprintf("%s for %s", s.State, time.Since(s.Since).Round(time.Second)))
	row("step", s.Step)
	if s.HeldUntil != nil {
		row("held until", s.HeldUntil.UTC().Format(time.RFC3339))
	}
	if s.PID != 0 {
		row("qemu", fmt.Sprintf("%s, pid %d", s.Machine, s.PID))
	}
	row("accelerator", strings.TrimSuffix(s.Accelerator+": "+s.AcceleratorReason, ": "))
	row("address", s.Address)
	row("network", s.Network)
	row("kubelet", s.Kubelet)
	row("API server", s.API)
	row("resets", fmt.Sprint(s.Resets))
	row("ready", fmt.Sprint(s.Ready))
	row("because", s.Unready)
	return w.Flush()
}
