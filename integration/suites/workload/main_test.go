// Package workload_test connects package workload to real API servers, through networks with every kind of fault.
package workload_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
)

// The API servers of workload clusters. steady is never stopped and records its requests. TestRestart stops mortal.
var steady, mortal *managementcluster.Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var group errgroup.Group
	group.Go(func() (err error) {
		steady, err = managementcluster.Start(context.Background(), managementcluster.Options{Audit: true})
		return err
	})
	group.Go(func() (err error) {
		mortal, err = managementcluster.Start(context.Background(), managementcluster.Options{})
		return err
	})
	err := group.Wait()
	defer stop(steady)
	defer stop(mortal)
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the API servers:", err)
		return 1
	}
	// The tests wait most of the time, so they do not need a core each.
	if err := flag.Set("test.parallel", "32"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func stop(cluster *managementcluster.Cluster) {
	if cluster == nil {
		return
	}
	if err := cluster.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping an API server:", err)
	}
}
