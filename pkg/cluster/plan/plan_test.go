package plan

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki/pkitest"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// stored returns the Secrets of all key pairs that a KVMConfig requests.
func stored(t *testing.T, config *v1alpha1.KVMConfig) []corev1.Secret {
	t.Helper()
	s := &state.Cluster{Config: config}
	complete, err := pkitest.Complete(nil, state.CertificateRequests(config, s.Settings), pki.Embedded{Clock: clocktesting.NewFakePassiveClock(now)}, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	var secrets []corev1.Secret
	for name, pair := range complete.Set {
		secret := s.CertificateSecret(name, pair, "1")
		secret.Annotations = s.Owner("certificates").Annotations()
		secrets = append(secrets, *secret)
	}
	return secrets
}

// TestAPairThatIsNotRequestedIsNotUsed: the pair of a removed member of etcd would never be renewed, and would bring
// back a CA that was rotated.
func TestAPairThatIsNotRequestedIsNotUsed(t *testing.T) {
	before, after := fixture.MakeCluster("ab1cd").Masters(3).Obj(), fixture.MakeCluster("ab1cd").Masters(2).Obj()
	secrets := stored(t, before)
	count := func(config *v1alpha1.KVMConfig) int {
		return len(NewPlanner().Plan(Observed{Config: config, Hold: state.HoldOwn, Secrets: secrets}, now).Certificates)
	}
	if whole, left := count(before), count(after); whole != len(secrets) || left != whole-1 {
		t.Errorf("of %d pairs %d are used, and %d without a master", len(secrets), whole, left)
	}
}

// TestAForeignNamespaceDecidesNothing: its annotations may be those of another cluster with the same ID, which was
// founded and restored.
func TestAForeignNamespaceDecidesNothing(t *testing.T) {
	foreign := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{UID: "1", Annotations: map[string]string{
		key.AnnotationEtcdFounders: "m7aaa", key.AnnotationEtcdRestored: "ab1cd-20261122T060000Z.db/1#0", key.AnnotationEtcdFounding: "true",
	}}}
	config := fixture.MakeCluster("ab1cd").Obj()
	s := NewPlanner().Plan(Observed{Config: config, Hold: state.HoldForeign, Namespace: foreign}, now)
	if !slices.Equal(s.Founders, []string{"m0aaa"}) || s.Restore.LastRestoreRecord() != "" || !s.NamespaceTaken || s.OwnsNamespace {
		t.Errorf("founders %v, restored %q, taken %t, owned %t", s.Founders, s.Restore.LastRestoreRecord(), s.NamespaceTaken, s.OwnsNamespace)
	}
}

// TestMembersOfAnEarlierClusterAreNotBelieved: without the certificate by which members are queried, what was observed
// is of an earlier cluster with the same name.
func TestMembersOfAnEarlierClusterAreNotBelieved(t *testing.T) {
	config := fixture.MakeCluster("ab1cd").Obj()
	seen := etcd.State{Members: []etcd.Member{{ID: 1, Name: pki.EtcdMember("m0aaa"), Started: true}}}
	for name, test := range map[string]struct {
		secrets      []corev1.Secret
		onlyMachines bool
		want         bool
	}{
		"no certificate":   {nil, false, false},
		"its certificates": {stored(t, config), false, true},
		"no Secret read":   {nil, true, true},
	} {
		o := Observed{Config: config, Hold: state.HoldOwn, Connects: true, Etcd: seen, Secrets: test.secrets, OnlyMachines: test.onlyMachines}
		if s := NewPlanner().Plan(o, now); s.Etcd.Known() != test.want {
			t.Errorf("%s: the members are known: %t, want %t", name, s.Etcd.Known(), test.want)
		}
	}
}
