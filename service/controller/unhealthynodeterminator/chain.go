package unhealthynodeterminator

import (
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/observe"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/nodereadiness"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/terminateunhealthynodes"
)

// newChain returns the ordered handlers of the controller. It is empty if the operator does not connect to workload
// clusters.
func newChain(e *apply.Engine, w observe.Workloads, c clock.PassiveClock, recorder events.EventRecorder) chain.Chain[*state.Machines] {
	if w == nil {
		return nil
	}
	return chain.Chain[*state.Machines]{
		// The readiness gates of the pods follow the Nodes, and the endpoints follow the gates. A gate also records
		// since when a Node is not Ready.
		{Handler: nodereadiness.New(e)},
		// A pass decides with the gates in the cache: those that were just written count from the next pass on.
		{Handler: terminateunhealthynodes.New(terminator{e, recorder}, c), Follows: []string{"nodereadiness"}},
	}
}
