package runner

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

func newLink() *cobra.Command {
	return &cobra.Command{
		Use:   "link",
		Short: "Connect an operator with the runner of a virtual machine",
		Long: `Connect an operator with the runner of a virtual machine, until the standard input ends: the runner writes the state of the machine to the
standard output, now and after each change, and reads the desired state from the standard input. Each report and each order is one
line of JSON.`,
		Example: `  # what the runner reports, until Ctrl-C
  sleep inf | kvm-operator runner link
  sleep inf | kubectl exec -i <vm>-0 -- /opt/kvm-operator/kvm-operator runner link`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			link, err := client(c).Connect(c.Context(), vmconfig.LinkPath, vmconfig.LinkProtocol)
			if err != nil {
				return err
			}
			defer func() { _ = link.Close() }()
			ended := make(chan error, 2)
			go func() { _, err := io.Copy(c.OutOrStdout(), link); ended <- err }()
			go func() { _, err := io.Copy(link, c.InOrStdin()); ended <- err }()
			select {
			case err := <-ended:
				return err
			case <-c.Context().Done():
				return nil
			}
		},
	}
}
