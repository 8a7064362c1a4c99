// Package cmd holds the commands, one in each file.
package cmd

import (
	"github.com/spf13/cobra"

	"github.com/kvm-operator/kvm-operator/cmd/runner"
)

// New returns the command kvm-operator.
func New() *cobra.Command {
	c := &cobra.Command{
		Use:   "kvm-operator",
		Short: "Workload clusters whose nodes are virtual machines in pods",
		Long: `kvm-operator runs on a management cluster of bare-metal machines and turns one KVMConfig into a workload cluster:
a Kubernetes cluster whose nodes are QEMU/KVM virtual machines, each inside one pod.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.AddCommand(newDaemon(), newMachines(), newRender(), runner.New(), newRuntime(), newSmolVM(), newVersion())
	return c
}
