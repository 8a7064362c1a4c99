// Package attachment is the handler of the NetworkAttachmentDefinition of a NetworkConfiguration, which has its name.
package attachment

import (
	"context"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	multusv1 "github.com/kvm-operator/kvm-operator/pkg/apis/multus/v1"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// Name is the handler's name.
const Name = "attachment"

// Resource is the pure part of the handler.
func Resource() apply.Resource[*vitistack.NetworkState] {
	return apply.Resource[*vitistack.NetworkState]{Handler: Name, Kinds: []client.Object{&multusv1.NetworkAttachmentDefinition{}}, Build: build}
}

func build(s *vitistack.NetworkState) (apply.Desired, error) {
	config, needed := vitistack.AttachmentConfig(s.Network, s.Settings.CNIVersion)
	if !needed {
		return apply.Desired{NotConfigured: true}, nil
	}
	labels := map[string]string{v1alpha1.LabelManagedBy: s.Settings.ManagedBy}
	if vlan := s.Network.Spec.VLAN; vlan > 0 {
		labels[v1alpha1.LabelVLAN] = strconv.Itoa(int(vlan))
	}
	return apply.Desired{Objects: []client.Object{&multusv1.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Network.Namespace, Name: s.Network.Name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.Network, v1alpha1.GroupVersion.WithKind("NetworkConfiguration"))},
		},
		Spec: multusv1.NetworkAttachmentDefinitionSpec{Config: config},
	}}}, nil
}

// New returns the handler. engine returns the engine that writes NetworkAttachmentDefinitions, nil while there is none.
func New(engine func() *apply.Engine) chain.Handler[*vitistack.NetworkState] { return handler{engine} }

type handler struct{ engine func() *apply.Engine }

// Name is the handler's name.
func (handler) Name() string { return Name }

// Declared returns the pure part of the handler.
func (handler) Declared() apply.Resource[*vitistack.NetworkState] { return Resource() }

// EnsureCreated applies the NetworkAttachmentDefinition, or removes it if the network is that of pods.
func (h handler) EnsureCreated(ctx context.Context, s *vitistack.NetworkState) (chain.Outcome, error) {
	engine := h.engine()
	switch {
	case s.Multus == vitistack.Installed && engine != nil:
		return Resource().Handle(engine).EnsureCreated(ctx, s)
	case !vitistack.Attaches(s.Network):
		return chain.NotConfigured(), nil
	case s.Multus == vitistack.Absent:
		return chain.Outcome{}, problem.Newf(v1alpha1.NetworkAttachmentFailed,
			"Multus is not installed: the API server has no NetworkAttachmentDefinitions of k8s.cni.cncf.io; the network is created once Multus is installed")
	}
	return chain.Unknown("MultusPending", "it is not known yet whether Multus is installed"), nil
}

// EnsureDeleted has nothing to do: Kubernetes deletes the object with its owner.
func (handler) EnsureDeleted(context.Context, *vitistack.NetworkState) (chain.Outcome, error) {
	return chain.Done(), nil
}
