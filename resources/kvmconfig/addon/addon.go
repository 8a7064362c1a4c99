// Package addon holds the handlers of what the operator maintains in a workload cluster: RBAC and bootstrap tokens for
// joining nodes, the pod network, kube-proxy and CoreDNS.
package addon

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Resource is a handler of objects in the workload cluster.
type Resource = apply.Resource[*state.Cluster]

// Bootstrap is the handler of what kubelets need to join: RBAC, and the bootstrap tokens of nodes that have not joined.
// It prunes a token once its node has joined or the token has expired.
func Bootstrap() Resource {
	return Resource{
		Handler: "bootstrap", Kinds: []client.Object{&corev1.Secret{}, &rbacv1.ClusterRoleBinding{}},
		Build: func(s *state.Cluster) (apply.Desired, error) {
			desired := apply.Desired{Objects: addons.RBAC(params(s)), Wait: clockAhead(s)}
			for _, token := range s.Joining().Wanted() {
				if s.Workload.Now.Before(token.Expires) {
					desired.Objects = append(desired.Objects, joining.Secret(token))
				}
			}
			return desired, nil
		},
	}
}

// clockAhead reports that no node can join because the clock of the workload cluster is ahead and current tokens have
// already expired there. That cluster removes expired tokens by itself, so the operator does not write them.
func clockAhead(s *state.Cluster) *chain.Outcome {
	expires := s.Tokens.Current(joining.Node{}).Expires
	if !s.Tokens.Known() || s.Workload.Now.Before(expires) {
		return nil
	}
	return &chain.Outcome{State: chain.StateDone, Reason: "ClockAhead", Message: fmt.Sprintf(
		"no node can join: by the clock of the workload cluster its token has expired at %s; correct the clocks of the masters' hosts",
		expires.UTC().Format(time.RFC3339))}
}

// CNI is the handler of the pod network.
func CNI() Resource {
	return resource("cni", addons.NetworkObjects)
}

// KubeProxy is the handler of kube-proxy. If its version is unknown, kube-proxy does not change.
func KubeProxy() Resource {
	made := resource("kubeproxy", func(p addons.Params) ([]client.Object, error) {
		if p.KubeProxy.Disabled {
			return nil, nil
		}
		return addons.KubeProxy(p)
	})
	build := made.Build
	made.Build = func(s *state.Cluster) (apply.Desired, error) {
		p := params(s)
		if p.Versions.Kubernetes == "" && p.KubeProxy.Image == "" && !p.KubeProxy.Disabled {
			return apply.Desired{}, s.VersionsErr
		}
		return build(s)
	}
	return made
}

// CoreDNS is the handler of the cluster's DNS.
func CoreDNS() Resource {
	return resource("coredns", func(p addons.Params) ([]client.Object, error) {
		if p.CoreDNS.Disabled {
			return nil, nil
		}
		return addons.CoreDNS(p), nil
	})
}

// All returns the handlers in the order of the chain.
func All() []Resource { return []Resource{Bootstrap(), CNI(), KubeProxy(), CoreDNS()} }

func resource(handler string, build func(addons.Params) ([]client.Object, error)) Resource {
	return Resource{Handler: handler, Kinds: addons.Kinds(), Build: func(s *state.Cluster) (apply.Desired, error) {
		objects, err := build(params(s))
		return apply.Desired{Objects: objects, NotConfigured: len(objects) == 0}, err
	}}
}

// params returns what the add-ons of the cluster depend on.
func params(s *state.Cluster) addons.Params {
	chosen := s.AddOns()
	versions := s.Versions
	versions.Kubernetes = s.ServedKubernetes()
	return addons.Params{
		Cluster: s.Cluster(), Versions: versions, Registry: s.Settings.Guest.RegistryDomain,
		Administrators: state.Administrators(s.Config, s.Settings), APIServerURL: s.InternalURL(), Emulated: s.Emulated(),
		KubeProxy: addons.Addon{Disabled: chosen.KubeProxy.Disabled, Image: chosen.KubeProxy.Image},
		CoreDNS:   addons.Addon{Disabled: chosen.CoreDNS.Disabled, Image: chosen.CoreDNS.Image},
		CNI: addons.CNI{
			Type: string(chosen.CNI.Type), Image: chosen.CNI.Image, PluginImage: chosen.CNI.PluginImage,
			Manifests: chosen.CNI.Manifests, MTU: s.Cluster().Calico.MTU,
		},
	}
}
