package cluster

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// replaced returns a cluster of three masters in which the last one is being replaced: m2aaa by m9zzz.
func replaced(t *testing.T) (scenario, world) {
	t.Helper()
	s := simple()
	s.config = fixture.MakeCluster("ab1cd").Masters(3).Workers(1).Obj()
	w := s.running(t)
	w.Namespace.Annotations = map[string]string{key.AnnotationEtcdFounders: "m0aaa,m1aaa,m2aaa"}
	w.Retired = []appsv1.Deployment{*w.Deployments["master-m2aaa"]}
	delete(w.Deployments, "master-m2aaa")
	s.config.Spec.Cluster.Masters[2].ID = "m9zzz"
	return s, w
}

func members(s *state.Cluster, ids ...string) []etcd.Member {
	var all []etcd.Member
	for i, id := range ids {
		w := s.EtcdMaster(id)
		all = append(all, etcd.Member{ID: uint64(i + 1), Name: w.Name, PeerURL: w.PeerURL, Started: true, Healthy: true})
	}
	return all
}

// TestMachineOfAMasterStaysUntilItsMemberIsOut: the machine stays with everything that it needs; that of the new master
// waits for its member.
func TestMachineOfAMasterStaysUntilItsMemberIsOut(t *testing.T) {
	scenario, w := replaced(t)
	s := scenario.snapshot(t, w)
	if got := []bool{s.Retires(state.Node{ID: "m2aaa", Role: key.RoleMaster}), s.AwaitsMember(s.Masters()[2]), s.AwaitsMember(s.Masters()[0])}; !slices.Equal(got, []bool{true, true, false}) {
		t.Errorf("no member answers: %v", got)
	}
	for handler, want := range map[string][]string{"service": {"master-m2aaa"}, "endpoints": {"master-m2aaa"}, "namespace": nil} {
		desired, err := build(t, s, handler)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range want {
			if !slices.Contains(names(desired.Objects), name) {
				t.Errorf("handler %s wants %v and not %s", handler, names(desired.Objects), name)
			}
		}
	}
	for handler, want := range map[string][]string{
		"deployment": {"master-m9zzz", "master-m2aaa"}, "configmap": {"master-ab1cd-m2aaa", "master-ab1cd-m2aaa"},
	} {
		desired, err := build(t, s, handler)
		if err != nil {
			t.Fatal(err)
		}
		var kept []string
		for _, object := range desired.Keep {
			kept = append(kept, object.GetName())
		}
		if handler == "configmap" {
			want = []string{key.BootDataName(key.RoleMaster, "ab1cd", "m2aaa"), key.BootDataName(key.RoleMaster, "ab1cd", "m2aaa")}
		}
		if diff := cmp.Diff(want, kept); diff != "" {
			t.Errorf("handler %s keeps others (-want +got):\n%s", handler, diff)
		}
	}
	for ids, want := range map[[3]string]bool{{"m0aaa", "m1aaa", "m2aaa"}: true, {"m0aaa", "m1aaa", "m9zzz"}: false} {
		s.Etcd = etcd.State{Members: members(s, ids[:]...)}
		if got := s.Retires(state.Node{ID: "m2aaa", Role: key.RoleMaster}); got != want {
			t.Errorf("with the members %v the machine stays: %t, want %t", ids, got, want)
		}
	}
}

// TestBeginningOfMasters: a founder founds until it is known to have run, another master joins once its member is
// added, and no member starts over with an empty disk.
func TestBeginningOfMasters(t *testing.T) {
	scenario, w := replaced(t)
	s := scenario.snapshot(t, w)
	m0, m9 := s.Masters()[0], s.Masters()[2]
	began := m0
	began.Deployment = m0.Deployment.DeepCopy()
	began.Deployment.Annotations[key.AnnotationEtcdMember] = "1"
	added := append(members(s, "m0aaa", "m1aaa", "m2aaa"), etcd.Member{ID: 0xabc, PeerURL: s.EtcdMaster("m9zzz").PeerURL, Learner: true})
	type beginning struct {
		State, Token string
		With         int
	}
	token := "founding" + fmt.Sprintf("%x", sha256.Sum256([]byte(s.Keys[state.KeyEncryption])))[:8]
	for name, test := range map[string]struct {
		node    state.Node
		members []etcd.Member
		want    beginning
	}{
		"a founder, and no member answers":              {m0, nil, beginning{"new", token, 3}},
		"a founder that runs":                           {m0, members(s, "m0aaa", "m1aaa", "m2aaa"), beginning{"existing", "", 1}},
		"a founder that has run, and no member answers": {began, nil, beginning{"existing", "", 1}},
		"another, and no member answers":                {m9, nil, beginning{"existing", "", 1}},
		"a founder that was taken out":                  {m0, members(s, "m1aaa", "m2aaa"), beginning{"existing", "", 1}},
		"another that is added":                         {m9, added, beginning{"existing", "abc", 4}},
		"another that runs":                             {m9, members(s, "m0aaa", "m1aaa", "m9zzz"), beginning{"existing", "", 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s.Etcd = etcd.State{Members: test.members}
			p := s.BootParams(test.node)
			if got := (beginning{p.EtcdState, p.EtcdFoundingToken, len(p.EtcdMembers)}); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// TestFoundersAreWrittenDownOnce: the founders that the namespace names count, regardless of later changes of the spec.
func TestFoundersAreWrittenDownOnce(t *testing.T) {
	scenario, w := replaced(t)
	for name, test := range map[string]struct {
		change func(*world)
		want   string
	}{
		"as they stand there":              {func(*world) {}, "m0aaa,m1aaa,m2aaa"},
		"those that have machines":         {func(w *world) { w.Namespace = corev1.Namespace{} }, "m0aaa,m1aaa,m2aaa"},
		"all, before there is any machine": {func(w *world) { *w = world{} }, "m0aaa,m1aaa,m9zzz"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := w
			test.change(&changed)
			desired, err := build(t, scenario.snapshot(t, changed), "namespace")
			if err != nil {
				t.Fatal(err)
			}
			if got := desired.Objects[0].GetAnnotations()[key.AnnotationEtcdFounders]; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestNothingBeginsAnewWhenTheNamespaceIsLost: the namespace was deleted, and with it all Deployments, of a cluster
// that was once restored from a snapshot and has got another master since. What its masters wrote later is on their
// disks.
func TestNothingBeginsAnewWhenTheNamespaceIsLost(t *testing.T) {
	scenario, w := replaced(t)
	scenario.config.Spec.Etcd = &v1alpha1.EtcdData{
		Snapshots: &v1alpha1.EtcdSnapshots{}, Restore: &v1alpha1.EtcdRestore{Snapshot: "ab1cd-20261122T060000Z.db", Generation: 1},
	}
	w.Namespace.Annotations[key.AnnotationEtcdRestored] = "ab1cd-20261122T060000Z.db/1#0"
	w.Namespace.UID = "of before"
	w.Namespace.Annotations[ownership.Annotation] = "default/ab1cd/namespace"
	w.Retired = nil
	token := scenario.snapshot(t, w).FoundingToken()
	for i, n := range scenario.config.Spec.Cluster.Masters {
		w.Deployments[key.DeploymentName(key.RoleMaster, n.ID)] = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			ownership.Annotation: "default/ab1cd/deployment", key.AnnotationEtcdMember: fmt.Sprintf("%d@%s", i+1, token),
		}}}
	}
	scenario.config.Status = status(scenario.snapshot(t, w), nil, now)
	for _, namespace := range []corev1.Namespace{{}, {ObjectMeta: metav1.ObjectMeta{UID: "of now"}}} {
		if namespace.UID != "" {
			desired, err := build(t, scenario.snapshot(t, world{}), "namespace")
			if err != nil {
				t.Fatal(err)
			}
			namespace.Annotations = desired.Objects[0].GetAnnotations()
			namespace.Annotations[ownership.Annotation] = "default/ab1cd/namespace"
		}
		s := scenario.snapshot(t, world{Namespace: namespace})
		if got := s.FoundingToken(); got != token || s.Restore.Phase() != etcd.NotRestoring || s.Founding {
			t.Errorf("the token was %q and is %q, the phase is %q, founding %t", token, got, s.Restore.Phase(), s.Founding)
		}
		for _, n := range s.Masters() {
			if p := s.BootParams(n); p.EtcdFoundingToken != "" || p.EtcdState != cloudconfig.EtcdExisting || p.EtcdFrom != token || s.AwaitsMember(n) {
				t.Errorf("%s begins as %s, with the token %q, from %q; awaits its member %t", n.ID, p.EtcdState, p.EtcdFoundingToken, p.EtcdFrom, s.AwaitsMember(n))
			}
		}
		scenario.config.Status = status(s, nil, now)
	}
	if got := scenario.config.Status.Etcd; got == nil || !slices.Equal(got.Founders, []string{"m0aaa", "m1aaa", "m2aaa"}) {
		t.Errorf("the status says %+v", got)
	}
}

// TestFoundersStayWhenMachinesAreLost: all Deployments of a cluster that grew from one master to three were deleted.
// Their volumes have data, and the two that joined must not found another etcd, in which they would be the majority.
func TestFoundersStayWhenMachinesAreLost(t *testing.T) {
	scenario, w := replaced(t)
	w.Namespace.Annotations[key.AnnotationEtcdFounders] = "m0aaa"
	scenario.config.Spec.KVM.K8sKVM.StorageType = v1alpha1.StorageTypePersistentVolume
	before := scenario.snapshot(t, w)
	scenario.config.Status.Nodes = status(before, []chain.Result{{Handler: "deployment", Area: ConditionNodes}}, now).Nodes
	w.Deployments, w.Retired, w.Pods = nil, nil, nil
	s := scenario.snapshot(t, w)
	if !slices.Equal(s.Founders, []string{"m0aaa"}) {
		t.Errorf("the founders are %v", s.Founders)
	}
	if got := []bool{s.AwaitsMember(s.Masters()[0]), s.AwaitsMember(s.Masters()[1]), s.AwaitsMember(s.Masters()[2])}; !slices.Equal(got, []bool{false, true, true}) {
		t.Errorf("who waits: %v", got)
	}
}

// TestMarkOfAMemberIsWrittenWhereAMachineWaits: a member that has run must not start with an empty disk, and a rollout
// may be paused for long.
func TestMarkOfAMemberIsWrittenWhereAMachineWaits(t *testing.T) {
	scenario, w := replaced(t)
	scenario.config.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
	old := w.Deployments["master-m1aaa"].DeepCopy()
	old.Spec.Template.Annotations[key.AnnotationNodeHash] = "of before"
	w.Deployments["master-m1aaa"] = old
	s := scenario.snapshot(t, w)
	s.Etcd = etcd.State{Members: members(s, "m0aaa", "m1aaa", "m2aaa")}
	desired, err := build(t, s, "deployment")
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(desired.Objects, func(o client.Object) bool { return o.GetName() == old.Name })
	if at < 0 {
		t.Fatalf("%s stays without a mark", old.Name)
	}
	got := desired.Objects[at].(*appsv1.Deployment)
	if got.Annotations[key.AnnotationEtcdMember] != "2" {
		t.Errorf("the mark is %q, want 2", got.Annotations[key.AnnotationEtcdMember])
	}
	if diff := cmp.Diff(old.Spec, got.Spec); diff != "" {
		t.Errorf("the machine changes (-old +new):\n%s", diff)
	}
	w.Deployments["master-m1aaa"] = got
	s = scenario.snapshot(t, w)
	s.Etcd = etcd.State{Members: members(s, "m0aaa", "m1aaa", "m2aaa")}
	if desired, err = build(t, s, "deployment"); err != nil || slices.Contains(names(desired.Objects), old.Name) {
		t.Errorf("it is written again: %v", err)
	}
}

// TestAMasterWhoseEtcdIsSilentGoesFirst: its machine and its Node may be healthy, and no other master may be replaced
// before its member has recovered.
func TestAMasterWhoseEtcdIsSilentGoesFirst(t *testing.T) {
	scenario := simple()
	scenario.config = fixture.MakeCluster("ab1cd").Masters(3).Obj()
	w := scenario.running(t)
	replaced := func(outdated ...string) []string {
		changed := w
		changed.Deployments = maps.Clone(w.Deployments)
		for _, id := range outdated {
			d := w.Deployments[key.DeploymentName(key.RoleMaster, id)].DeepCopy()
			d.Spec.Template.Annotations[key.AnnotationNodeHash] = "of before"
			changed.Deployments[d.Name] = d
		}
		changed.Pods = slices.Clone(w.Pods)
		for i, p := range changed.Pods {
			if slices.Contains(outdated, p.Labels[key.LabelNode]) {
				changed.Pods[i].Annotations = map[string]string{key.AnnotationNodeHash: "of before"}
			}
		}
		changed.Connects, changed.Workload = true, state.Workload{Connected: true, Nodes: readyNodes(changed.Pods)}
		changed.Etcd = etcd.State{Members: members(scenario.snapshot(t, w), "m0aaa", "m1aaa", "m2aaa")}
		changed.Etcd.Members[1].Healthy = false
		s := scenario.snapshot(t, changed)
		if s.BootDataErr != nil {
			t.Fatal(s.BootDataErr)
		}
		return slices.Sorted(maps.Keys(s.Rollout.Replace))
	}
	for _, test := range []struct{ outdated, want []string }{
		{[]string{"m0aaa", "m1aaa", "m2aaa"}, []string{"m1aaa"}},
		{[]string{"m0aaa", "m2aaa"}, nil},
	} {
		if diff := cmp.Diff(test.want, replaced(test.outdated...), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("of the outdated %v others are replaced (-want +got):\n%s", test.outdated, diff)
		}
	}
}

// TestARolloutDoesNotSpreadToMastersWhoseHostsBoot: while one master is down with a new revision that was never Ready,
// another one that goes down is not replaced, because its host may be booting; only after a long time without a
// majority are all replaced.
func TestARolloutDoesNotSpreadToMastersWhoseHostsBoot(t *testing.T) {
	scenario := simple()
	scenario.config = fixture.MakeCluster("ab1cd").Masters(3).Obj()
	w := scenario.running(t)
	for _, d := range w.Deployments {
		d.Annotations[key.AnnotationEtcdMember] = "abc"
	}
	for name, test := range map[string]struct {
		since    time.Duration
		founded  bool
		replaced []string
	}{
		"it has just gone away":                    {0, true, nil},
		"it has been away for a quarter":           {15 * time.Minute, true, nil},
		"it has been away for long":                {20 * time.Minute, true, []string{"m1aaa"}},
		"nothing can be lost, for no etcd has run": {0, false, []string{"m1aaa"}},
	} {
		changed := w
		changed.Deployments, changed.Pods = maps.Clone(w.Deployments), slices.Clone(w.Pods)
		for name, d := range changed.Deployments {
			d = d.DeepCopy()
			if name != "master-m0aaa" {
				d.Spec.Template.Annotations[key.AnnotationNodeHash] = "of before"
			}
			if !test.founded {
				delete(d.Annotations, key.AnnotationEtcdMember)
			}
			changed.Deployments[name] = d
		}
		for i, p := range changed.Pods {
			changed.Pods[i] = *p.DeepCopy()
			if id := p.Labels[key.LabelNode]; id != "m2aaa" {
				changed.Pods[i].Status.Conditions = nil
			}
			if p.Labels[key.LabelNode] != "m0aaa" {
				changed.Pods[i].Annotations[key.AnnotationNodeHash] = "of before"
			}
		}
		scenario.config.Status.MinoritySince = nil
		if test.since > 0 {
			scenario.config.Status.MinoritySince = new(metav1.NewTime(now.Add(-test.since)))
		}
		s := scenario.snapshot(t, changed)
		if s.BootDataErr != nil {
			t.Fatal(s.BootDataErr)
		}
		if diff := cmp.Diff(test.replaced, slices.Sorted(maps.Keys(s.Rollout.Replace)), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: others are replaced (-want +got):\n%s", name, diff)
		}
		if s.MinoritySince == nil || !s.MinoritySince.Time.Equal(now.Add(-test.since)) {
			t.Errorf("%s: the majority is reported as lost since %v", name, s.MinoritySince)
		}
	}
}

// readyNodes returns a Ready Node for each pod.
func readyNodes(pods []corev1.Pod) []corev1.Node {
	var nodes []corev1.Node
	for _, p := range pods {
		nodes = append(nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
	return nodes
}
