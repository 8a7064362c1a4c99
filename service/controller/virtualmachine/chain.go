package virtualmachine

import (
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/resources/virtualmachine/cloudinit"
	"github.com/kvm-operator/kvm-operator/resources/virtualmachine/configmap"
	"github.com/kvm-operator/kvm-operator/resources/virtualmachine/declaration"
	"github.com/kvm-operator/kvm-operator/resources/virtualmachine/disks"
	"github.com/kvm-operator/kvm-operator/resources/virtualmachine/display"
	"github.com/kvm-operator/kvm-operator/resources/virtualmachine/guestshutdown"
	"github.com/kvm-operator/kvm-operator/resources/virtualmachine/live"
	"github.com/kvm-operator/kvm-operator/resources/virtualmachine/machine"
	"github.com/kvm-operator/kvm-operator/resources/virtualmachine/service"
	"github.com/kvm-operator/kvm-operator/resources/virtualmachine/statefulset"
	"github.com/kvm-operator/kvm-operator/resources/virtualmachine/stop"
)

// acts are what handlers do besides applying objects.
type acts interface {
	guestshutdown.Actor
	stop.Scaler
	live.Commander
	disks.Grower
	display.Refresher
}

// newChain returns the ordered handlers of the controller. password makes the password of a display.
func newChain(e *apply.Engine, a acts, password func() string) chain.Chain[*virtualmachine.State] {
	return chain.Chain[*virtualmachine.State]{
		{Handler: declaration.Handler{}, Condition: ConditionDeclaration},
		// Before everything that may fail.
		{Handler: stop.New(a), Condition: ConditionRunning},
		{Handler: cloudinit.New().Handle(e), Condition: ConditionObjects},
		{Handler: display.NewSecret(password).Handle(e), Condition: ConditionObjects},
		{Handler: service.New().Handle(e), Condition: ConditionObjects},
		{Handler: configmap.New().Handle(e), Condition: ConditionObjects},
		// Before the StatefulSet, so that a machine whose guest shut down permanently gets no other pod.
		{Handler: guestshutdown.New(a), Condition: ConditionRunning},
		// A pod may not start before its configuration is there, all of it.
		{Handler: statefulset.New().Handle(e), Needs: []string{"configmap", "cloudinit", "displaysecret"}, Condition: ConditionObjects},
		{Handler: disks.New(a), Condition: ConditionDisks},
		{Handler: machine.Handler{}, Condition: ConditionRunning},
		{Handler: live.New(a), Condition: ConditionChanges},
		{Handler: display.New(a), Condition: ConditionChanges},
	}
}

// Resources are the handlers of the chain that are functions from the state to objects.
func Resources() []apply.Resource[*virtualmachine.State] {
	return apply.Resources(newChain(nil, nil, nil))
}
