package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// keep decides what has to change in boot data that nodes keep: a node cannot join with an expired token, and a member
// of etcd that has run must not start with an empty disk. It returns why boot data was damaged, if some was.
func keep(s *state.Cluster, stored map[string]BootData) error {
	var failed error
	for i := range s.Nodes {
		n := &s.Nodes[i]
		data := stored[key.BootDataName(n.Role, s.ID(), n.ID)]
		if data.Private != nil {
			n.CertificatesEnd = certificatesEnd(data.Private)
		}
		if n.BootData.Private == "" || !s.KeepsBootData(*n) {
			continue
		}
		if err := renewToken(s, n, data.Private); err != nil {
			failed = err
		}
		if err := removeFoundingToken(s, n, data.Public); err != nil {
			failed = err
		}
	}
	for i := range s.Retiring {
		n := &s.Retiring[i]
		if err := removeFoundingToken(s, n, stored[key.BootDataName(n.Role, s.ID(), n.ID)].Public); err != nil {
			failed = err
		}
	}
	return failed
}

// certificatesEnd returns when the first of the certificates in boot data expires; zero if that is not recorded.
func certificatesEnd(private *corev1.Secret) time.Time {
	end, err := time.Parse(time.RFC3339, private.Annotations[key.AnnotationCertificatesEnd])
	if err != nil {
		return time.Time{}
	}
	return end
}

// renewToken sets the private boot data that a node keeps with the current bootstrap token, if it has another one.
func renewToken(s *state.Cluster, n *state.Node, private *corev1.Secret) error {
	if private == nil || private.Annotations[key.AnnotationBootstrapToken] == s.Tokens.Current(n.Joins()).ID {
		return nil
	}
	var err error
	n.Kept.Private, err = cloudconfig.WithToken(string(private.Data[nodepod.UserData]), n.BootData.Private)
	return invalid(n, err)
}

// removeFoundingToken sets the public boot data that a master keeps without the founding token, if its member has run.
func removeFoundingToken(s *state.Cluster, n *state.Node, public *corev1.ConfigMap) error {
	if public == nil || s.CurrentMember(*n) == "" {
		return nil
	}
	text, err := cloudconfig.WithoutFoundingToken(public.Data[nodepod.UserData])
	if text != public.Data[nodepod.UserData] {
		n.Kept.Public = text
	}
	return invalid(n, err)
}

// invalid reports boot data that was damaged.
func invalid(n *state.Node, err error) error {
	if err == nil {
		return nil
	}
	return problem.Newf("BootDataInvalid", "boot data of node %s, which it keeps: %s", n.ID, err)
}
