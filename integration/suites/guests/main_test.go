// Package guests_test runs VirtualMachines and SmolVMs as their users do: with an operator, the controllers and
// kubelets of a real cluster, block devices, and guests.
package guests_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/blockdevice"
	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
)

// long also runs the faults that take half a minute or more, as make vm-faults does.
var long = flag.Bool("long", false, "also run the faults that take half a minute or more")

const tools = "../../../.tools"

// shared is the cluster of all tests. It has two nodes.
var shared struct {
	once    sync.Once
	cluster *realcluster.Cluster
	err     error
	// disks is the directory with the files behind all block devices.
	disks string
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	var err error
	if shared.disks, err = os.MkdirTemp("", "guests"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code = m.Run()
	if shared.cluster != nil {
		err = shared.cluster.Stop()
	}
	// The kubelet of a node whose power was cut leaves its devices on top of those of the tests.
	if err = errors.Join(err, blockdevice.DetachBelow(context.Background(), shared.disks), os.RemoveAll(shared.disks)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// directory returns an empty directory for the files behind block devices. It is removed after all tests, because a kubelet
// may still have a device then.
func directory(t *testing.T) string {
	t.Helper()
	path, err := os.MkdirTemp(shared.disks, "") //nolint:usetesting // it outlives the test
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func theCluster(t *testing.T) *realcluster.Cluster {
	t.Helper()
	shared.once.Do(func() {
		shared.cluster, shared.err = realcluster.Start(context.Background(), realcluster.Options{
			Nodes: make([]realcluster.NodeOptions, 2), Output: os.Stderr,
			Images: []string{filepath.Join(tools, "vm-runner-image.tar"), filepath.Join(tools, "smolvm-runtime-image.tar")},
		})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// isLong leaves a test out that takes half a minute or more, unless all are to run.
func isLong(t *testing.T) {
	t.Helper()
	if !*long {
		t.Skip("left out here, and run by make vm-faults")
	}
}
