package runner

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdfiles"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
)

func newEtcdSnapshot() *cobra.Command {
	c := &cobra.Command{
		Use:   "etcd-snapshot",
		Short: "Keep, check and place snapshots of etcd; what the Jobs of spec.etcd run",
	}
	c.AddCommand(newSnapshotKeep(), newSnapshotCheck(), newSnapshotPlace())
	return c
}

func newSnapshotKeep() *cobra.Command {
	c := &cobra.Command{
		Use:   "keep <file>",
		Short: "Check a new snapshot, name it by cluster and time, and remove the oldest ones",
		Long: `Check a file that etcdctl has just saved in the directory, give it the name <cluster>-<time>.db and remove the oldest snapshots of
the cluster when there are more than --keep. Other files of the directory are left alone.`,
		Example: "  kvm-operator runner etcd-snapshot keep --directory=/snapshots --cluster=ab1cd --keep=14 ab1cd-etcd-snapshot-1.new",
		Args:    cobra.ExactArgs(1),
	}
	var a etcdfiles.Archive
	c.Flags().StringVar(&a.Directory, "directory", "/snapshots", "where the snapshots are")
	c.Flags().StringVar(&a.Cluster, "cluster", "", "id of the cluster")
	c.Flags().IntVar(&a.Keep, "keep", 14, "how many snapshots of the cluster are kept, 1 or more")
	_ = c.MarkFlagRequired("cluster")
	c.RunE = func(c *cobra.Command, args []string) error {
		if a.Keep < 1 {
			return fmt.Errorf("--keep is %d and has to be 1 or more", a.Keep)
		}
		name, err := a.Add(c.Context(), args[0], time.Now())
		if name != "" {
			fmt.Fprintln(c.OutOrStdout(), name)
		}
		return err
	}
	return c
}

func newSnapshotCheck() *cobra.Command {
	return &cobra.Command{
		Use:     "check <file>",
		Short:   "Check that a file is a complete snapshot of etcd",
		Example: "  kvm-operator runner etcd-snapshot check /snapshots/ab1cd-20261122T060000Z.db",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := etcdfiles.Check(c.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), args[0]+" is complete")
			return nil
		},
	}
}

func newSnapshotPlace() *cobra.Command {
	c := &cobra.Command{
		Use:   "place <directory>",
		Short: "Replace the etcd data of a master with a snapshot",
		Long: `Replace the data of an etcd member with the directory data that "etcdutl snapshot restore" created in the given directory. The former
data is kept in the same place, under a name that ends with .before-<token>. The command fails while a machine uses the data, and
does nothing if this restore is already in place.`,
		Example: "  kvm-operator runner etcd-snapshot place --volume=/etc/kubernetes/data/etcd --ticket=restored0123456789ab --disk=12G /restored",
		Args:    cobra.ExactArgs(1),
	}
	var p etcdfiles.Placement
	c.Flags().StringVar(&p.Volume, "volume", "", "directory with the data of the member")
	c.Flags().StringVar(&p.Token, "ticket", "", "founding token of this restore")
	size := c.Flags().String("disk", "", "size of the disk that is made for the data, such as 12G; empty makes a directory where there is no disk")
	for _, name := range []string{"volume", "ticket"} {
		_ = c.MarkFlagRequired(name)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		p.Root = args[0]
		if *size != "" {
			var err error
			if p.DiskSize, err = disk.ParseSize(*size); err != nil {
				return fmt.Errorf("--disk: %w", err)
			}
		}
		if err := p.Place(c.Context()); err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "the snapshot is in place in %s\n", p.Volume)
		return nil
	}
	return c
}
