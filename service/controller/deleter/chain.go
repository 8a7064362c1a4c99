package deleter

import (
	"github.com/kvm-operator/kvm-operator/pkg/cluster/observe"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/node"
)

// newChain returns the ordered handlers of the deleter. It is empty if the operator does not connect to workload
// clusters.
func newChain(management *apply.Engine, w observe.Workloads, turns *chain.Turns[*state.Machines]) chain.Chain[*state.Machines] {
	if w == nil {
		return nil
	}
	remover := func(m *state.Machines) node.Remover {
		if e := w.EngineOf(m.Name()); e != nil {
			return e
		}
		return nil // a nil engine has to become a nil interface
	}
	return chain.Chain[*state.Machines]{
		// The API server of the management cluster decides whether a machine is gone.
		{Handler: turns.Limit(node.New(management, remover))},
	}
}
