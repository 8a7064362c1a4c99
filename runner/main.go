// Command runner is kvm-operator with the one command that node pods need. It stands in the runner's image under the name
// kvm-operator: it starts faster, because every probe starts one, and needs a fraction of the memory, which every machine
// pays for.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/kvm-operator/kvm-operator/cmd/runner"
)

func main() {
	c := &cobra.Command{Use: "kvm-operator", Short: "Virtual machines in pods", SilenceUsage: true, SilenceErrors: true}
	c.AddCommand(runner.New())
	os.Exit(runner.Execute(c))
}
