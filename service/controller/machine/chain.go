package machine

import (
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/late"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/resources/machine/cloudinit"
	"github.com/kvm-operator/kvm-operator/resources/machine/dataimport"
	"github.com/kvm-operator/kvm-operator/resources/machine/network"
	"github.com/kvm-operator/kvm-operator/resources/machine/storage"
	"github.com/kvm-operator/kvm-operator/resources/machine/virtualmachine"
)

// engineOf returns the function that returns the engine of a session, nil while there is none.
func engineOf(session *late.Session) func(*vitistack.State) *apply.Engine {
	return func(*vitistack.State) *apply.Engine { return session.View().Engine }
}

// newChain returns the handlers of the controller. imports and infra return the engines for CDI's objects, and of the cluster
// that runs the VirtualMachine.
// Backward this is the order of a deletion: the guest, its disks and data, its networks.
func newChain(engine *apply.Engine, imports, infra func(*vitistack.State) *apply.Engine) chain.Chain[*vitistack.State] {
	return chain.Chain[*vitistack.State]{
		{Handler: dataimport.NewHandOver(imports), Condition: v1alpha1.ConditionStorageReady},
		// Nothing is created for a Machine whose networks are missing.
		{Handler: network.Handler{}, Condition: v1alpha1.ConditionNetworkReady},
		// Claims are not waited for: some are bound only when the guest is scheduled.
		{Handler: storage.New().Handle(engine), Needs: []string{network.Name}, Condition: v1alpha1.ConditionStorageReady},
		// On deletion, what CDI still fills is gone before the other claims.
		{Handler: dataimport.New(imports), Needs: []string{network.Name}, Follows: []string{storage.Name}, Condition: v1alpha1.ConditionStorageReady},
		{Handler: cloudinit.New().Handle(engine), Needs: []string{network.Name}, Condition: v1alpha1.ConditionStorageReady},
		{
			Handler: virtualmachine.New(infra), Condition: v1alpha1.ConditionVirtualMachineReady,
			// KubeVirt reports a VirtualMachine as failed while a claim does not exist.
			Needs: []string{network.Name, storage.Name, dataimport.Name, cloudinit.Name},
		},
	}
}
