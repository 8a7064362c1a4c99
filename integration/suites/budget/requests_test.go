package budget_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/service"
)

// allowance is the number of writes of a new cluster besides its objects: the finalizer, the indexes and the status.
const allowance = 3

func TestNewClusterCostsItsObjectsAndThreeWrites(t *testing.T) {
	t.Parallel()
	sizes := map[string]*fixture.Cluster{
		"one master, two workers":                   fixture.MakeCluster("bud1").Workers(2),
		"three masters, five workers, etcd on PVCs": fixture.MakeCluster("bud3").Masters(3).Workers(5).EtcdOnVolume("15Gi"),
	}
	driver := theLab.Driver(t)
	for name, c := range sizes {
		t.Run(name, func(t *testing.T) {
			config := c.Obj()
			theLab.Create(t, config)
			operator := driver.Instance(t, lab.InstanceOptions{Readiness: state.PodReadiness})
			operator.Settle(t, config, theLab.Observed)
			objects := len(theLab.Objects(t, config))
			if writes := operator.Requests.Writes(); len(writes) > objects+allowance {
				t.Errorf("%d writes for %d objects, at most %d are allowed: %v", len(writes), objects, objects+allowance, writes)
			}
			if reads := operator.Requests.Reads(); len(reads) > 2 {
				t.Errorf("%d reads, at most 2 are allowed: %v", len(reads), reads)
			}
			t.Logf("%d objects, %d writes, %d reads", objects, len(operator.Requests.Writes()), len(operator.Requests.Reads()))
		})
	}
}

func TestConvergedClusterCausesNoRequests(t *testing.T) {
	t.Parallel()
	lab.AwaitSteadyTokens(t)
	config := fixture.MakeCluster("quiet").Workers(2).Obj()
	theLab.Create(t, config)
	operator := theLab.Driver(t).Instance(t, lab.InstanceOptions{Readiness: state.PodReadiness})
	operator.Settle(t, config, theLab.Observed)
	operator.Requests.Reset()
	for range 100 {
		if err := operator.Reconcile(context.Background(), config); err != nil {
			t.Fatal(err)
		}
	}
	if all := operator.Requests.All(); len(all) != 0 {
		t.Errorf("100 reconciles of a converged cluster made %d requests: %v", len(all), all)
	}
}

func TestRestartWith50ConvergedClustersCostsNothing(t *testing.T) {
	t.Parallel()
	const clusters = 50
	lab.AwaitSteadyTokens(t)
	selector := labels.SelectorFromSet(labels.Set{"restart": "yes"})
	driver := theLab.Driver(t)
	first := driver.Instance(t, lab.InstanceOptions{Readiness: state.PodReadiness})
	for i := range clusters {
		config := fixture.MakeCluster(fmt.Sprintf("re%d", i)).Workers(1).Label("restart", "yes").Obj()
		theLab.Create(t, config)
		first.Settle(t, config, theLab.Observed)
	}
	before := passes(t)
	second := theLab.Run(t, func(c *service.Config) { c.Selector = selector; c.ListenAddress = "" })
	lab.Eventually(t, lab.Timeout, func() error {
		if n := passes(t) - before; n < clusters {
			return fmt.Errorf("%d of %d clusters were reconciled", n, clusters)
		}
		return nil
	})
	second.Stop()
	if all := second.Requests.All(); len(all) != 0 {
		t.Errorf("a restart with %d converged clusters made %d requests beside its watches: %v", clusters, len(all), all[:min(len(all), 20)])
	}
}

// passes counts how often the last handler of the chain has run in this process.
func passes(t *testing.T) int {
	t.Helper()
	families, err := prometheus.Gatherer(metrics.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "operatorkit_controller_operation" {
			return count(family)
		}
	}
	return 0
}

func count(family *dto.MetricFamily) int {
	n := 0
	for _, m := range family.GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() == "resource" && label.GetValue() == "kubeconfig" {
				n += int(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return n
}
