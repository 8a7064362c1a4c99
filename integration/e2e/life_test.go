package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const id = "e2e01"

// TestLifeOfACluster is the whole way: founding, growth, work, end.
func TestLifeOfACluster(t *testing.T) {
	l := setUp(t, 1, 2)
	if err := l.Apply(l.ctx, manifest(id, []string{"m1"}, []string{"w1"})); err != nil {
		t.Fatal(err)
	}
	l.awaitReady(2)
	t.Log("a worker more")
	if err := l.Apply(l.ctx, manifest(id, []string{"m1"}, []string{"w1", "w2"})); err != nil {
		t.Fatal(err)
	}
	l.awaitReady(3)
	if err := l.Prove(l.ctx, l.kubeconfig); err != nil {
		t.Fatal(err)
	}
	t.Log("the end")
	l.ends()
}

// awaitReady waits until the KVMConfig is Ready and the workload cluster has that many Ready Nodes.
func (l *life) awaitReady(nodes int) {
	l.t.Helper()
	l.eventually(patience, func() error {
		status := l.management("get", "kvmconfig", id, "--output=jsonpath={.metadata.generation}"+
			`{range .status.conditions[?(@.type=="Ready")]} {.observedGeneration} {.status} {.message}{end}`)
		generation, status, _ := strings.Cut(status, " ")
		if strings.HasPrefix(status, generation+" True") {
			return nil
		}
		return fmt.Errorf("%s", status)
	})
	if l.kubeconfig == "" {
		var err error
		if l.kubeconfig, err = l.Kubeconfig(l.ctx, id); err != nil {
			l.t.Fatal(err)
		}
	}
	ready := l.workload("", "get", "nodes", `--output=jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status} {end}`)
	if diff := cmp.Diff(strings.Repeat("True ", nodes), ready); diff != "" {
		l.t.Fatalf("other Nodes than wanted are Ready (-want +got):\n%s", diff)
	}
	l.t.Log("\n" + l.workload("", "get", "nodes", "--output=wide"))
}

// ends deletes the cluster and waits until nothing of it is left, two minutes after its last machine at most.
func (l *life) ends() {
	l.t.Helper()
	l.management("delete", "kvmconfig", id, "--wait=false")
	l.eventually(patience, func() error {
		if names := l.management("--namespace="+id, "get", "pods", "--output=name"); names != "" {
			return fmt.Errorf("machines are left: %s", strings.Join(strings.Fields(names), " "))
		}
		return nil
	})
	l.eventually(2*time.Minute, func() error {
		for _, arguments := range [][]string{
			{"get", "kvmconfigs,namespaces", "--output=name"}, {"get", "secrets,clusterrolebindings", "--selector=giantswarm.io/cluster=" + id, "--all-namespaces", "--output=name"},
		} {
			for _, name := range strings.Fields(l.management(arguments...)) {
				if strings.HasPrefix(name, "kvmconfig") || strings.HasSuffix(name, "/"+id) || arguments[1] == "secrets,clusterrolebindings" {
					return fmt.Errorf("%s is left", name)
				}
			}
		}
		return nil
	})
}
