// Command runner is kvm-operator with only the command that node pods need. In the runner's image it is named
// kvm-operator. It starts faster, which matters because every probe starts one, and it needs a fraction of the memory,
// which every machine pays for.
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
