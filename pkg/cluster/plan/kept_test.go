package plan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// waiting returns a cluster whose nodes are outdated and wait, because the rollout is paused. Its boot data is stored; that
// of the master is of the time before its member ran.
func waiting(t *testing.T) Observed {
	t.Helper()
	o := settled(t, fixture.MakeCluster("ab1cd").Masters(1).Workers(1))
	before := o
	before.Etcd, before.Workload, before.Config = etcd.State{}, state.Workload{Reason: "Connecting"}, o.Config.DeepCopy()
	before.Config.Status.Nodes, before.Objects = nil, state.Objects{}
	s := planner.Plan(before, now)
	for _, n := range s.Nodes {
		name := key.BootDataName(n.Role, s.ID(), n.ID)
		o.BootData[name] = BootData{
			Private: &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
					key.AnnotationBootstrapToken: s.Tokens.Current(n.Joins()).ID, key.AnnotationCertificatesEnd: now.Add(time.Hour).Format(time.RFC3339),
				}},
				Data: map[string][]byte{nodepod.UserData: []byte(n.BootData.Private)},
			},
			Public: &corev1.ConfigMap{Data: map[string]string{nodepod.UserData: n.BootData.Public}},
		}
		o.age(t, n.Role, n.ID)
	}
	o.Config.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
	return o
}

// TestBootDataThatANodeKeeps: boot data of a node that waits does not change, except for a bootstrap token that has expired and
// for the permission to found etcd, which a member that has run must not have.
func TestBootDataThatANodeKeeps(t *testing.T) {
	const master, worker = "master-ab1cd-m0aaa", "worker-ab1cd-w0aaa"
	for name, test := range map[string]struct {
		change                 func(*Observed)
		later                  time.Duration
		ticket, token, damaged bool
	}{
		"its member has run":      {change: func(*Observed) {}, ticket: true},
		"its member has not run":  {change: func(o *Observed) { o.Etcd, o.Config.Status.Nodes = etcd.State{}, nil }},
		"its token has expired":   {change: func(*Observed) {}, later: 2 * joining.Period, ticket: true, token: true},
		"the rollout may proceed": {change: func(o *Observed) { o.Config.Spec.Rollout.Paused = false }, later: 2 * joining.Period, token: true},
		"nothing is stored":       {change: func(o *Observed) { o.BootData = nil }, later: 2 * joining.Period},
		"the private half is damaged": {
			change: func(o *Observed) { o.BootData[worker].Private.Data[nodepod.UserData] = []byte("{") },
			later:  2 * joining.Period, ticket: true, damaged: true,
		},
		"the public half is damaged": {change: func(o *Observed) { o.BootData[master].Public.Data[nodepod.UserData] = "{" }, damaged: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := waiting(t)
			test.change(&o)
			s := planner.Plan(o, now.Add(test.later))
			if got := s.Nodes[0].Kept.Public != ""; got != test.ticket {
				t.Errorf("the founding token is taken from the boot data of the master: %t, want %t", got, test.ticket)
			}
			if got := s.Nodes[1].Kept.Private != ""; got != test.token {
				t.Errorf("the boot data of the worker gets another token: %t, want %t", got, test.token)
			}
			if got := s.BootDataErr != nil; got != test.damaged {
				t.Errorf("damaged: %v, want %t", s.BootDataErr, test.damaged)
			}
			for _, n := range s.Nodes {
				if known := !n.CertificatesEnd.IsZero(); known != (o.BootData != nil) {
					t.Errorf("it is known when the certificates of %s expire: %t", n.ID, known)
				}
			}
		})
	}
}

// TestWhenCertificatesExpire: an annotation that cannot be read says nothing.
func TestWhenCertificatesExpire(t *testing.T) {
	for text, want := range map[string]time.Time{"": {}, "tomorrow": {}, "2026-11-22T12:00:00Z": now} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key.AnnotationCertificatesEnd: text}}}
		if got := certificatesEnd(secret); !got.Equal(want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
