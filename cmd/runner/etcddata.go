package runner

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdfiles"
)

func newEtcdData() *cobra.Command {
	c := &cobra.Command{
		Use:   "etcd-data",
		Short: "Rename and remove the data of a master that was removed from its cluster; what the Jobs of status.retired run",
	}
	c.AddCommand(
		newRetired("rename", "Rename the directory of a master's data, so that no machine starts with it",
			`Rename a directory such as k8s-master-<id>. The command fails while a machine uses the data. It does nothing if the directory was renamed before or
does not exist.`, etcdfiles.Retired.Rename, "in %s, %s is renamed to %s, or did not exist\n"),
		newRetired("remove", "Remove the directory of a master's data after it was renamed",
			"Remove a renamed directory and everything in it. The command follows no link.",
			etcdfiles.Retired.Remove, "in %s, the data of %s, which was renamed to %s, is removed\n"),
	)
	return c
}

func newRetired(use, short, long string, do func(etcdfiles.Retired) error, done string) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.NoArgs,
		Example: "  kvm-operator runner etcd-data " + use + " --directory=/home/core/volumes/ab1cd --name=k8s-master-m0aaa --as=retired-20261122T060000Z-k8s-master-m0aaa",
	}
	var r etcdfiles.Retired
	c.Flags().StringVar(&r.Directory, "directory", "", "parent directory of the masters' directories")
	c.Flags().StringVar(&r.As, "as", "", "name after it is renamed, which starts with retired-")
	c.Flags().StringVar(&r.Name, "name", "", "name before it is renamed")
	for _, name := range []string{"directory", "as", "name"} {
		_ = c.MarkFlagRequired(name)
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := r.Validate(); err != nil {
			return err
		}
		if err := do(r); err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), done, r.Directory, r.Name, r.As)
		return nil
	}
	return c
}
