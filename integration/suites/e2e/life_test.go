package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/stage"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
)

const (
	id = "e2e01"
	// staleness is how long Nodes without machines may exist: until they are no longer Ready, and a little longer.
	staleness = 5 * time.Minute
)

// TestLifeOfACluster covers a complete life: founding, growth, work and deletion. The machines boot the bare image and
// download what they lack, as Flatcar does.
func TestLifeOfACluster(t *testing.T) {
	l := setUp(t, stage.Options{Masters: 1, Workers: 2, Image: stage.BareImage})
	if err := l.Apply(l.ctx, manifestOf(stage.BareImage, id, []string{"m1"}, []string{"w1"})); err != nil {
		l.t.Fatal(err)
	}
	l.awaitReady(2)
	t.Log("a worker more")
	if err := l.Apply(l.ctx, manifestOf(stage.BareImage, id, []string{"m1"}, []string{"w1", "w2"})); err != nil {
		l.t.Fatal(err)
	}
	l.awaitReady(3)
	if err := l.Prove(l.ctx, l.kubeconfig); err != nil {
		l.t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"cni-plugins-linux-amd64-v" + cloudconfig.CNIPluginsVersion + ".tgz", "kubectl", "kubelet"}, l.Downloaded()); diff != "" {
		t.Errorf("the bare image lets nodes download other things than it lacks (-want +got):\n%s", diff)
	}
	l.stayBelowTheirLimits()
	t.Log("DNS is scaled to zero")
	l.losesDNS()
	t.Log("the end")
	l.ends()
}

// losesDNS scales CoreDNS to zero. The cluster is not Ready until the operator has repaired that and DNS works again,
// while its API is Available the whole time.
func (l *life) losesDNS() {
	l.t.Helper()
	l.workload("", "--namespace=kube-system", "scale", "deployment/coredns", "--replicas=0")
	l.eventually(staleness, func() error {
		if err := l.condition("Ready"); err == nil || !strings.Contains(err.Error(), "AddOnUnavailable") {
			return errors.New("Ready does not say that DNS is gone: " + fmt.Sprint(err))
		}
		return nil
	})
	if err := l.condition("Available"); err != nil {
		l.t.Errorf("the API answers, and the condition is %s", err)
	}
	l.eventually(patience, func() error { return l.condition("Ready") })
}

// awaitReady waits until the KVMConfig is Ready and the workload cluster has that number of Ready Nodes.
func (l *life) awaitReady(nodes int) {
	l.t.Helper()
	l.eventually(patience, func() error { return l.condition("Ready") })
	if l.kubeconfig == "" {
		var err error
		if l.kubeconfig, err = l.Kubeconfig(l.ctx, id); err != nil {
			l.t.Fatal(err)
		}
	}
	l.eventually(staleness, func() error {
		ready := l.workload("", "get", "nodes", `--output=jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status} {end}`)
		if diff := cmp.Diff(strings.Repeat("True ", nodes), ready); diff != "" {
			return fmt.Errorf("other Nodes than wanted are Ready (-want +got):\n%s", diff)
		}
		return nil
	})
	l.t.Log("\n" + l.workload("", "get", "nodes", "--output=wide"))
}

// condition returns an error unless the condition is True for the current generation of the KVMConfig.
func (l *life) condition(name string) error {
	l.t.Helper()
	text := l.management("get", "kvmconfig", id, "--output=jsonpath={.metadata.generation}"+
		`{range .status.conditions[?(@.type=="`+name+`")]} {.observedGeneration} {.status} {.reason}: {.message}{end}`)
	generation, said, _ := strings.Cut(text, " ")
	if strings.HasPrefix(said, generation+" True") {
		return nil
	}
	return errors.New(name + ": " + said)
}

// ends deletes the cluster and waits until nothing of it is left, at most two minutes after its last machine.
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
