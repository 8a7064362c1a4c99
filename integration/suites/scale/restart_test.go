package scale_test

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/service"
)

// restart is what a start of the operator costs where all clusters are as declared.
type restart struct {
	// took is the time until the operator has reconciled every cluster, and lists that of a client that lists what the
	// operator caches, one kind after the other.
	took, lists   time.Duration
	writes, reads int
}

// timeRestart starts the operator beside n clusters that need nothing.
func timeRestart(b testing.TB, l *lab.Lab, n int) restart {
	var r restart
	r.lists = timeLists(b, l)
	before := looks(b)
	start := time.Now()
	operator := l.Run(b)
	for late := start.Add(timeout); looks(b)-before < uint64(n); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			b.Fatalf("the operator has reconciled %d of %d clusters after %s", looks(b)-before, n, timeout)
		}
	}
	r.took = time.Since(start)
	awaitRest(b)
	operator.Stop()
	for _, request := range operator.Requests.All() {
		if request.Write() {
			r.writes++
		} else {
			r.reads++
		}
	}
	return r
}

// timeLists lists the operator's objects with a client without a cache.
func timeLists(b testing.TB, l *lab.Lab) time.Duration {
	start := time.Now()
	for _, kind := range service.CreatedKinds() {
		gvk, err := apiutil.GVKForObject(kind, l.Client.Scheme())
		if err != nil {
			b.Fatal(err)
		}
		list, err := l.Client.Scheme().New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Client.List(context.Background(), list.(client.ObjectList), client.MatchingLabels{key.LabelManagedBy: key.Operator}); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start)
}

// looks returns how often the cluster controller has finished with a cluster in this process. A start queues every
// cluster once, and none comes a second time before all have had their turn.
func looks(b testing.TB) uint64 {
	families, err := metrics.Registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	var sum uint64
	for _, family := range families {
		if family.GetName() != "operatorkit_controller_event" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "controller" && label.GetValue() == "cluster" {
					sum += metric.GetHistogram().GetSampleCount()
				}
			}
		}
	}
	return sum
}
