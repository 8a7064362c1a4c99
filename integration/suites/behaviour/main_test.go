// Package behaviour_test tests the operator's behavior from outside: through the API server, with real controllers and
// simulated hosts.
package behaviour_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/service"
)

// theLab is the management cluster of all tests here. theOperator is the operator of most of them: it reconciles the
// KVMConfigs with the label shard=shared.
var (
	theLab      *lab.Lab
	theOperator *lab.Operator
)

const (
	shard  = "shard"
	shared = "shared"
	// hosts is the number of hosts for each role. It is smaller than what two clusters of three masters need for
	// themselves.
	hosts = 5
	// certOperators is the number of namespaces of newCertOperator that the operators adopt Secrets from: certs-sec1
	// and so on.
	certOperators = 8
	// parallel tests wait for the management cluster most of the time, not for a CPU.
	parallel = "20"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallel); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	code := 1
	err := start(context.Background())
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, "starting the management cluster:", err)
	}
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the management cluster:", err)
		return 1
	}
	return code
}

func start(ctx context.Context) error {
	var err error
	theLab, err = lab.Start(ctx, managementcluster.Options{ControllerManager: true, Scheduler: true, Kwok: true})
	if err != nil {
		return err
	}
	for _, role := range []string{key.RoleMaster, key.RoleWorker} {
		if _, err := theLab.AddNodes(ctx, hosts, map[string]string{key.LabelManagementNodesRole: role}); err != nil {
			return err
		}
	}
	theOperator, err = theLab.StartOperator(ofShard(shared))
	return err
}

func stop() error {
	if theLab == nil {
		return nil
	}
	if theOperator != nil {
		if err := theOperator.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "the operator ended with an error:", err)
		}
	}
	return theLab.Stop()
}

// ofShard restricts an operator to one shard, and enables Ingresses, which are off by default.
func ofShard(name string) lab.Option {
	return func(c *service.Config) {
		c.Selector = labels.SelectorFromSet(labels.Set{shard: name})
		c.Settings.IngressClass = "nginx"
		for i := 1; i <= certOperators; i++ {
			c.Settings.AdoptFrom = append(c.Settings.AdoptFrom, fmt.Sprintf("certs-sec%d", i))
		}
	}
}

// through puts a transport between an operator and the API server.
func through(wrap func(http.RoundTripper) http.RoundTripper) lab.Option {
	return func(c *service.Config) {
		c.REST = rest.CopyConfig(c.REST)
		c.REST.Wrap(wrap)
	}
}

// makeCluster builds a KVMConfig for theOperator with one master and no worker.
func makeCluster(id string) *fixture.Cluster { return fixture.MakeCluster(id).Label(shard, shared) }
