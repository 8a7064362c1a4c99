package smolvm

import (
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/state"
	"github.com/kvm-operator/kvm-operator/resources/smolvm/smolvmbinding"
	"github.com/kvm-operator/kvm-operator/resources/smolvm/smolvmmachine"
)

// newChain returns the ordered handlers of the controller.
func newChain(runtime smolvmmachine.Runtime) chain.Chain[*state.State] {
	return chain.Chain[*state.State]{
		// The node is stored before it is asked for anything.
		{Handler: smolvmbinding.Handler{}, Condition: v1alpha1.ConditionScheduled},
		{Handler: smolvmmachine.New(runtime), Needs: []string{smolvmbinding.Name}, Condition: v1alpha1.ConditionReconciled},
	}
}
