package v1alpha1_test

import (
	"context"
	"maps"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
)

// A rejection is a change and the one sentence by which the API server refuses it.
type rejection struct{ change, want string }

// rejections are changes to testdata/minimal.yaml that make it an object that the API server rejects.
func rejections() map[string]rejection {
	all := map[string]rejection{}
	for _, table := range []map[string]rejection{rejectedCluster, rejectedKubernetes, rejectedMachines, rejectedLifecycle, rejectedUnworkable} {
		maps.Copy(all, table)
	}
	return all
}

func TestBadObjectsAreRefusedWithOneSentence(t *testing.T) {
	for name, test := range rejections() {
		t.Run(name, func(t *testing.T) {
			err := server.Create(context.Background(), crd.Load(t, "minimal", test.change), client.DryRunAll)
			crd.Refused(t, err, test.want)
		})
	}
}

// TestEveryRuleRefusesSomething holds the tables complete: a rule of the CRD that no row runs into has no test.
func TestEveryRuleRefusesSomething(t *testing.T) {
	var said []string
	for _, table := range []map[string]rejection{rejections(), refusedUpdates, refusedStatuses} {
		for _, row := range table {
			said = append(said, row.want)
		}
	}
	crd.EveryRuleSpeaks(t, clusters, said)
}
