// Package virtualmachine is the handler of the VirtualMachine of a Machine.
package virtualmachine

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/kubevirt"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// Name is the handler's name.
const Name = "virtualmachine"

// again is when a pass looks again without an event.
const again = 30 * time.Second

// Resource is the pure part of the handler.
func Resource() apply.Resource[*vitistack.State] {
	return apply.Resource[*vitistack.State]{Handler: Name, Kinds: []client.Object{&kubevirtv1.VirtualMachine{}}, Build: build, Remains: remains, Ends: ends}
}

func build(s *vitistack.State) (apply.Desired, error) {
	if err := s.Refusal(); err != nil {
		return apply.Desired{}, err // a VirtualMachine that exists does not change
	}
	return apply.Desired{Objects: []client.Object{kubevirt.VirtualMachine(s.Machine, s.Wanted, s.Settings)}}, nil
}

// New returns the handler. engine returns the engine that writes where KubeVirt is, nil while there is none.
func New(engine func(*vitistack.State) *apply.Engine) chain.Handler[*vitistack.State] {
	return handler{engine: engine}
}

type handler struct {
	engine func(*vitistack.State) *apply.Engine
}

// Name is the handler's name.
func (handler) Name() string { return Name }

// Declared returns the pure part of the handler.
func (handler) Declared() apply.Resource[*vitistack.State] { return Resource() }

// EnsureCreated applies the VirtualMachine. It is Done when KubeVirt has accepted it, whether the guest runs or not.
func (h handler) EnsureCreated(ctx context.Context, s *vitistack.State) (chain.Outcome, error) {
	if err := s.Refusal(); err != nil {
		return chain.Outcome{}, err
	}
	if s.KubeVirt == vitistack.Absent {
		return chain.Outcome{}, problem.Newf(v1alpha1.KubeVirtAPIError,
			"KubeVirt is not installed: the API server has no VirtualMachines of kubevirt.io; the VirtualMachine is created once KubeVirt is installed")
	}
	engine := h.connected(s)
	if engine == nil {
		return unknown(), nil
	}
	outcome, err := Resource().Handle(engine).EnsureCreated(ctx, s)
	if err == nil && outcome.State == chain.StateDone {
		outcome.Reason = v1alpha1.ReasonVMCreated
	}
	return outcome, err
}

// EnsureDeleted deletes the VirtualMachine. It is Done when that and the guest are gone, or KubeVirt is.
func (h handler) EnsureDeleted(ctx context.Context, s *vitistack.State) (chain.Outcome, error) {
	if s.KubeVirt == vitistack.Absent {
		return chain.Done(), nil
	}
	engine := h.connected(s)
	if engine == nil {
		return unknown(), nil
	}
	return Resource().Handle(engine).EnsureDeleted(ctx, s)
}

// ends returns the guest if its restart was approved. KubeVirt starts the next one by itself. This one has a UID of its
// own, so that no other is ever ended.
func ends(s *vitistack.State) []client.Object {
	if !s.RestartApproved() {
		return nil
	}
	return []client.Object{s.VMI}
}

// remains returns what is left of a Machine without a VirtualMachine that names it as its owner, nil if nothing is, and
// whether it is to be deleted: a VirtualMachine of vitistack's operator that was never adopted, because something was
// wrong with the Machine, and a guest that was orphaned. Others delete a guest that has a controller.
func remains(s *vitistack.State) (left client.Object, deletes bool) {
	switch {
	case s.VM != nil && s.Owns(s.VM) && !ownership.Has(s.VM.Annotations):
		return s.VM, true
	case guestRemains(s):
		ours := s.VMI.Labels[v1alpha1.LabelManagedBy] == s.Settings.ManagedBy
		return s.VMI, ours && s.VM == nil && metav1.GetControllerOf(s.VMI) == nil
	}
	return nil, false
}

// connected returns the engine; nil while it is not known what there is.
func (h handler) connected(s *vitistack.State) *apply.Engine {
	if s.KubeVirt != vitistack.Installed {
		return nil
	}
	return h.engine(s)
}

func unknown() chain.Outcome {
	return chain.Wait(v1alpha1.ReasonPending, "it is not known yet whether KubeVirt is installed and has a VirtualMachine of this name", again)
}

// guestRemains returns whether the guest is there, which uses the claims. That of a foreign VirtualMachine has the
// same name.
func guestRemains(s *vitistack.State) bool {
	if s.VMI == nil || s.VM != nil && !s.Owns(s.VM) {
		return false
	}
	labels := s.VMI.Labels
	return labels[v1alpha1.LabelMachine] == s.Machine.Name || labels[v1alpha1.LabelSourceMachine] == s.Machine.Name
}
