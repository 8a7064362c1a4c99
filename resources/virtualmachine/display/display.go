// Package display has the handlers of the password of a virtual machine's display.
package display

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// NewSecret returns the handler of the Secret that the operator creates. It never changes the Secret, because a user may,
// and keeps it until the machine is deleted.
func NewSecret(password func() string) apply.Resource[*virtualmachine.State] {
	return apply.Resource[*virtualmachine.State]{
		Handler: "displaysecret", Kinds: []client.Object{&corev1.Secret{}}, CreateOnly: true, KeepUnwanted: true, AgainOnCreate: true,
		Build: func(s *virtualmachine.State) (apply.Desired, error) {
			if !s.Display.Create {
				return apply.Desired{NotConfigured: true}, nil
			}
			return apply.Desired{Objects: []client.Object{s.DisplaySecret(password())}}, nil
		},
	}
}

// Refresher tells a kubelet that a Secret has changed.
type Refresher interface {
	// Refresh has the kubelet replace the files of a pod's Secrets at once. version is the Secret's.
	Refresh(ctx context.Context, pod *corev1.Pod, version string) error
}

// New returns the handler that has a new password reach a running machine.
func New(r Refresher) chain.Handler[*virtualmachine.State] { return handler{r} }

type handler struct{ refresher Refresher }

// Name is the handler's name.
func (handler) Name() string { return "display" }

// EnsureCreated tells the kubelet once of each change of the Secret. It is independent of whether the operator reaches
// the runner.
func (h handler) EnsureCreated(ctx context.Context, s *virtualmachine.State) (chain.Outcome, error) {
	if version := s.RefreshDisplay(); version != "" {
		return chain.Done(), h.refresher.Refresh(ctx, s.Pod, version)
	}
	return chain.Done(), nil
}

// EnsureDeleted does nothing.
func (handler) EnsureDeleted(context.Context, *virtualmachine.State) (chain.Outcome, error) {
	return chain.Done(), nil
}
