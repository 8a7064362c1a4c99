// Package kubevirt_test runs virtual machines on KubeVirt's real virt-api and virt-controller: the ground on which the
// operator of Machines stands, and the proof that the harness is like a cluster with KubeVirt.
package kubevirt_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/kvm-operator/kvm-operator/integration/harness/kubevirt"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
)

const startTimeout = 3 * time.Minute

// The management cluster with KubeVirt that all tests share. Each test has its own namespace.
var (
	cluster *managementcluster.Cluster
	virt    *kubevirt.KubeVirt
	storage *kubevirt.Provisioner
)

func TestMain(m *testing.M) {
	flag.Parse()
	klog.SetLogger(logr.Discard())
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	began := time.Now()
	cluster, err = managementcluster.Start(ctx, kubevirt.Needs(managementcluster.Options{Output: os.Stderr}))
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	virt, err = kubevirt.Start(ctx, cluster, kubevirt.Options{Output: os.Stderr})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, virt.Stop()) }()
	storage, err = kubevirt.StartProvisioner(ctx, cluster.RESTConfig())
	if err != nil {
		return 1, err
	}
	defer storage.Stop()
	if err := errors.Join(storage.Class(ctx, "standard", true, false), storage.Class(ctx, "late", false, true)); err != nil {
		return 1, err
	}
	if _, err := virt.AddNode(ctx, "64Gi"); err != nil {
		return 1, err
	}
	fmt.Fprintf(os.Stderr, "the management cluster with KubeVirt is ready after %.1fs\n", time.Since(began).Seconds())
	// The tests wait most of the time, so they do not need a core each.
	if err := flag.Set("test.parallel", "8"); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
