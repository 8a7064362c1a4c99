package deleter

import (
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/observe"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/node"
)

// newChain returns the ordered handlers of the deleter. It is empty if the operator does not connect to workload
// clusters.
func newChain(management *apply.Engine, w observe.Workloads, turns *chain.Turns[*cluster.Machines]) chain.Chain[*cluster.Machines] {
	if w == nil {
		return nil
	}
	remover := func(m *cluster.Machines) node.Remover {
		if e := w.EngineOf(m.Name()); e != nil {
			return e
		}
		return nil // a nil engine has to become a nil interface
	}
	return chain.Chain[*cluster.Machines]{
		// The API server of the management cluster decides whether a machine is gone.
		{Handler: turns.Limit(node.New(management, remover))},
	}
}
