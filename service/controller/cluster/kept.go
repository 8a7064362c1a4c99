package cluster

import (
	"context"
	"time"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// changeKept changes what has to change in boot data that nodes keep: a node cannot join with an expired token, and a
// member of etcd that has run must not start with an empty disk. A list may be some seconds old, so a Secret is read by
// name before it is changed.
func (r *Reconciler) changeKept(ctx context.Context, s *state.Cluster, listed []corev1.Secret) error {
	private := map[client.ObjectKey]*corev1.Secret{}
	for i := range listed {
		private[client.ObjectKeyFromObject(&listed[i])] = &listed[i]
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		name := client.ObjectKey{Namespace: s.Namespace(), Name: key.BootDataName(n.Role, s.ID(), n.ID)}
		seen := private[name]
		if seen != nil {
			n.CertificatesEnd = certificatesEnd(seen)
		}
		if n.BootData.Private == "" || !s.KeepsBootData(*n) {
			continue
		}
		if err := r.renewToken(ctx, s, n, name, seen); err != nil {
			return err
		}
		if err := r.takeTicket(ctx, s, n); err != nil {
			return err
		}
	}
	for i := range s.Retiring {
		if err := r.takeTicket(ctx, s, &s.Retiring[i]); err != nil {
			return err
		}
	}
	return nil
}

// hasToken returns whether boot data has the current bootstrap token.
func hasToken(s *state.Cluster, n *state.Node, private *corev1.Secret) bool {
	return private.Annotations[key.AnnotationBootstrapToken] == s.Tokens.Current(n.Joins()).ID
}

// certificatesEnd returns when the first of the certificates in boot data expires; zero if that is not recorded.
func certificatesEnd(private *corev1.Secret) time.Time {
	end, err := time.Parse(time.RFC3339, private.Annotations[key.AnnotationCertificatesEnd])
	if err != nil {
		return time.Time{}
	}
	return end
}

// renewToken updates the bootstrap token in the private boot data that a node keeps; seen is the Secret from a list,
// nil if the list does not have it.
func (r *Reconciler) renewToken(ctx context.Context, s *state.Cluster, n *state.Node, name client.ObjectKey, seen *corev1.Secret) error {
	if seen != nil && hasToken(s, n, seen) {
		return nil
	}
	var stored corev1.Secret
	if err := r.Client.Get(ctx, name, &stored); err != nil || hasToken(s, n, &stored) {
		return microerror.Mask(client.IgnoreNotFound(err))
	}
	text, err := cloudconfig.WithToken(string(stored.Data[nodepod.UserData]), n.BootData.Private)
	n.Kept.Private, n.CertificatesEnd = text, certificatesEnd(&stored)
	noteInvalid(s, n, err)
	return nil
}

func (r *Reconciler) takeTicket(ctx context.Context, s *state.Cluster, n *state.Node) error {
	if s.RanAs(*n) == "" {
		return nil
	}
	name := client.ObjectKey{Namespace: s.Namespace(), Name: key.BootDataName(n.Role, s.ID(), n.ID)}
	var stored corev1.ConfigMap
	if err := r.Client.Get(ctx, name, &stored); err != nil {
		return microerror.Mask(client.IgnoreNotFound(err))
	}
	text, err := cloudconfig.WithoutTicket(stored.Data[nodepod.UserData])
	if text != stored.Data[nodepod.UserData] {
		n.Kept.Public = text
	}
	noteInvalid(s, n, err)
	return nil
}

// noteInvalid reports boot data that was damaged.
func noteInvalid(s *state.Cluster, n *state.Node, err error) {
	if err != nil {
		s.BootDataErr = problem.Newf("BootDataInvalid", "boot data of node %s, which it keeps: %s", n.ID, err)
	}
}
