package plan

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
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

// TestWhichMembersCount walks through all situations: what was observed of the members counts only with the certificate
// by which they are queried, in a namespace of the cluster's own, while no snapshot is restored.
func TestWhichMembersCount(t *testing.T) {
	base := settled(t, fixture.MakeCluster("ab1cd"))
	for i := range 64 {
		is := func(bit int) bool { return i>>bit&1 == 1 }
		o := base
		o.Config, o.Namespace.Annotations = base.Config.DeepCopy(), map[string]string{}
		connects, deleted, foreign, certificate, machines, restores := is(0), is(1), is(2), is(3), is(4), is(5)
		o.Connects, o.Rendering, o.OnlyMachines = connects, certificate, machines
		if deleted {
			o.Config.DeletionTimestamp = new(metav1.NewTime(now))
		}
		if foreign {
			o.Hold = state.HoldForeign
		}
		if restores {
			o.Config.Spec.Etcd = &v1alpha1.EtcdData{Restore: &v1alpha1.EtcdRestore{Snapshot: "ab1cd-20261122T060000Z.db"}}
			o.Namespace.Annotations[key.AnnotationEtcdRestoring] = "ab1cd-20261122T060000Z.db/0"
		}
		// The marks of a foreign namespace do not count, so it restores nothing either.
		want := connects && !deleted && !foreign && (certificate || machines) && !restores
		if got := Machines(o, now).Etcd.Known(); got != want {
			t.Errorf("connects %t, deleted %t, foreign %t, certificate %t, only machines %t, restores %t: known %t, want %t",
				connects, deleted, foreign, certificate, machines, restores, got, want)
		}
	}
}

// TestWhatIsKnownOfTheWorkloadCluster: what was seen counts only if the operator may and can connect.
func TestWhatIsKnownOfTheWorkloadCluster(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Observed)
		reason string
	}{
		"it is reached":                     {func(*Observed) {}, ""},
		"its API has no address":            {func(o *Observed) { o.Services, o.Pods = Services{}, nil }, state.ReasonNoMaster},
		"there is no certificate":           {func(o *Observed) { o.Rendering = false }, state.ReasonNoCertificate},
		"the namespace is of another owner": {func(o *Observed) { o.Hold = state.HoldForeign }, state.ReasonOwnedByOther},
	} {
		t.Run(name, func(t *testing.T) {
			o := settled(t, fixture.MakeCluster("ab1cd"))
			o.Namespace.Annotations = map[string]string{"of": "another"}
			test.change(&o)
			s := planner.Plan(o, now)
			if s.Workload.Connected != (test.reason == "") || s.Workload.Reason != test.reason || len(s.Workload.Nodes) > 0 != s.Workload.Connected {
				t.Errorf("connected: %t, because %q, want %q", s.Workload.Connected, s.Workload.Reason, test.reason)
			}
		})
	}
	o := settled(t, fixture.MakeCluster("ab1cd"))
	o.Connects = false
	if s := planner.Plan(o, now); s.Workload.Connected || len(s.Addresses) > 0 {
		t.Error("an operator that does not connect knows the workload cluster")
	}
}

// TestIndexes: a node keeps its index, a new one gets none that was in use, a master that retires too, and nothing
// changes while the cluster is deleted.
func TestIndexes(t *testing.T) {
	all := settled(t, fixture.MakeCluster("ab1cd").Masters(2).Workers(2))
	gone := all
	gone.Config = all.Config.DeepCopy()
	spec := &gone.Config.Spec
	spec.Cluster.Masters, spec.KVM.Masters = spec.Cluster.Masters[:1], spec.KVM.Masters[:1]
	spec.Cluster.Workers[0].ID, spec.KVM.Workers[0].ID = "w9aaa", "w9aaa"
	gone.Retired = []appsv1.Deployment{*all.Deployments["master-m1aaa"]}
	for name, test := range map[string]struct {
		change func(*Observed)
		want   map[string]int32
	}{
		"its machine stays": {func(*Observed) {}, map[string]int32{"m0aaa": 1, "m1aaa": 2, "w1aaa": 4, "w9aaa": 5}},
		"its member is out": {func(o *Observed) { o.Etcd.Members = o.Etcd.Members[:1] }, map[string]int32{"m0aaa": 1, "w1aaa": 4, "w9aaa": 5}},
		"it is deleted": {
			func(o *Observed) { o.Config.DeletionTimestamp = new(metav1.NewTime(now)) }, map[string]int32{"m0aaa": 1, "m1aaa": 2, "w0aaa": 3, "w1aaa": 4},
		},
	} {
		o := gone
		o.Config, o.Etcd.Members = gone.Config.DeepCopy(), slices.Clone(gone.Etcd.Members)
		test.change(&o)
		if got := planner.Plan(o, now).Indexes; !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestAPlanChangesNothing: what was observed is the same after a plan, and the same again gives the same plan.
func TestAPlanChangesNothing(t *testing.T) {
	o, twin := waiting(t), waiting(t)
	first, second := planner.Plan(o, now), NewPlanner().Plan(o, now)
	if diff := cmp.Diff(twin, o); diff != "" {
		t.Errorf("what was observed has changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(first.Rollout, second.Rollout); diff != "" || first.Nodes[0].Hash != second.Nodes[0].Hash || first.Nodes[0].Kept != second.Nodes[0].Kept {
		t.Errorf("another plan:\n%s", diff)
	}
}
