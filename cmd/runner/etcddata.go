package runner

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvm-operator/kvm-operator/pkg/etcdfiles"
)

func newEtcdData() *cobra.Command {
	c := &cobra.Command{
		Use:   "etcd-data",
		Short: "Rename and remove the data of a master that has left its cluster; what the Jobs of status.retired run",
	}
	c.AddCommand(
		newRetired("rename", "Give the directory of a master's data another name, with which no machine begins",
			`Give a directory such as k8s-master-<id> another name. It is refused while a machine has the data, and does nothing when it was done before, or
when there is no such directory.`, etcdfiles.Retired.Rename, "%s has no %s any more: what there was is %s\n"),
		newRetired("remove", "Remove the directory of a master's data that has another name",
			"Remove the directory to which rename has given another name, with all that is in it.",
			etcdfiles.Retired.Remove, "%s has nothing any more of what was %s and then %s\n"),
	)
	return c
}

func newRetired(use, short, long string, do func(etcdfiles.Retired) error, done string) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.NoArgs,
		Example: "  kvm-operator runner etcd-data " + use + " --directory=/home/core/volumes/ab1cd --name=k8s-master-m0aaa --as=retired-20261122T060000Z-k8s-master-m0aaa",
	}
	var r etcdfiles.Retired
	c.Flags().StringVar(&r.Directory, "directory", "", "directory that has those of masters")
	c.Flags().StringVar(&r.As, "as", "", "the other name, which begins with retired-")
	c.Flags().StringVar(&r.Name, "name", "", "name of the directory while a machine may use it")
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
