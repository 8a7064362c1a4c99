package networkconfiguration

import (
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/resources/networkconfiguration/attachment"
)

// newChain returns the handlers of the controller.
func newChain(engine func() *apply.Engine) chain.Chain[*vitistack.NetworkState] {
	return chain.Chain[*vitistack.NetworkState]{
		{Handler: attachment.New(engine), Condition: v1alpha1.ConditionAttachmentReady},
	}
}
