// Package living_test tests the operator with running workload clusters. Their API servers and the management cluster
// are real. Hosts are simulated, and the tests play the machines and their kubelets.
package living_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/go-logr/logr"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/tenant"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/service"
)

// theLab is the management cluster. The others are API servers of workload clusters: home signs certificates, quiet
// records its requests, and many clusters share crowd. The first cluster owns the add-ons in crowd, so the others are
// never Ready.
var (
	theLab             *lab.Lab
	home, quiet, crowd *server
	// where has the address of each cluster's API for operators.
	where tenant.Places

	errNotYet = errors.New("not yet")
)

// server is the API server of workload clusters.
type server struct{ *tenant.Server }

func startServer(options managementcluster.Options, ids ...string) (*server, error) {
	s, err := tenant.Start(options, ids...)
	return &server{s}, err
}

const (
	// shard is the label by which each test has its own operator.
	shard = "shard"
	// hosts is the number of hosts for each role. The benchmarks need room for the machines of 150 clusters.
	hosts = 8
	// many is the size of the largest crowd.
	many = 100
)

func TestMain(m *testing.M) {
	flag.Parse()
	klog.SetLogger(logr.Discard())
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err) // the flag is the testing package's
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	code := 1
	ctx, cancel := context.WithCancel(context.Background())
	err := start(ctx)
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, "starting the API servers:", err)
	}
	cancel()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the API servers:", err)
		return 1
	}
	return code
}

func start(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { return startLab(ctx) })
	group.Go(func() (err error) {
		home, err = startServer(managementcluster.Options{
			ControllerManager: true,
			Flags: map[managementcluster.Component][]string{
				managementcluster.ControllerManager: {"--controllers=certificatesigningrequest-signing-controller,serviceaccount-controller"},
			},
		}, "boot")
		return err
	})
	group.Go(func() (err error) {
		quiet, err = startServer(managementcluster.Options{Audit: true}, "live")
		return err
	})
	group.Go(func() (err error) {
		crowd, err = startServer(managementcluster.Options{}, append(slices.Concat(crowdIDs("c", many), crowdIDs("i", many)), "image", "failed", "blind1", "blind3", "drain", "repair", "pair", "refused", "alone", "refus", "hangs", "mute", "beside", "joins")...)
		return err
	})
	return group.Wait()
}

func startLab(ctx context.Context) (err error) {
	theLab, err = lab.Start(ctx, managementcluster.Options{ControllerManager: true, Scheduler: true, Kwok: true})
	if err != nil {
		return err
	}
	for _, role := range []string{key.RoleMaster, key.RoleWorker} {
		if _, err := theLab.AddNodes(ctx, hosts, map[string]string{key.LabelManagementNodesRole: role}); err != nil {
			return err
		}
	}
	return theLab.PlayKubelets(ctx)
}

func stop() error {
	var errs []error
	if theLab != nil {
		errs = append(errs, theLab.Stop())
	}
	for _, s := range []*server{home, quiet, crowd} {
		if s != nil && s.Server != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// crowdIDs returns the ids of clusters that share an API server. Each prefix belongs to one test or benchmark.
func crowdIDs(prefix string, n int) []string {
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s%02d", prefix, i))
	}
	return ids
}

// ofShard restricts an operator to the living clusters of one shard.
func ofShard(selector string) lab.Option {
	return func(c *service.Config) {
		parsed, err := labels.Parse(selector)
		if err != nil {
			panic(err) // the tests write them
		}
		c.Selector, c.MachinesOnly, c.Addresses = parsed, false, where.Answers
	}
}
