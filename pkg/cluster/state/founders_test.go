package state_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// TestFoundersStayUntilEtcdHasBegun: the machine of one founder may run and know the others, whether or not the cache
// shows any machine. Once etcd is founded the spec counts.
func TestFoundersStayUntilEtcdHasBegun(t *testing.T) {
	config := fixture.MakeCluster("abc12").Masters(1).Obj()
	only := config.Spec.Cluster.Masters[0].ID
	own := key.OwnerKVMConfig(config, "namespace").String()
	for name, test := range map[string]struct {
		namespace map[string]string
		want      []string
		held      []string
	}{
		"two were removed": {map[string]string{ownership.Annotation: own, key.AnnotationEtcdFounders: only + ",m8,m9", key.AnnotationEtcdFounding: "true"},
			[]string{only, "m8", "m9"}, []string{"m8", "m9"}},
		"all have":      {map[string]string{ownership.Annotation: own, key.AnnotationEtcdFounders: "m9", key.AnnotationEtcdFounding: "true"}, []string{only, "m9"}, []string{"m9"}},
		"none has":      {map[string]string{ownership.Annotation: own, key.AnnotationEtcdFounders: only, key.AnnotationEtcdFounding: "true"}, []string{only}, nil},
		"it has begun":  {map[string]string{ownership.Annotation: own, key.AnnotationEtcdFounders: only + ",m9"}, []string{only}, nil},
		"of a stranger": {map[string]string{ownership.Annotation: "x/y/namespace", key.AnnotationEtcdFounders: "m9", key.AnnotationEtcdFounding: "true"}, []string{only}, nil},
		"no namespace":  {nil, []string{only}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{UID: "1", Annotations: test.namespace}}
			complete, held := state.HoldFounders(config, namespace, state.HoldOf(namespace, config, nil))
			var got []string
			for _, n := range state.NewNodes(complete.Spec) {
				if n.Role == key.RoleMaster && n.Machine.Memory == config.Spec.KVM.Masters[0].Memory {
					got = append(got, n.ID)
				}
			}
			if !slices.Equal(got, test.want) || !slices.Equal(held, test.held) {
				t.Errorf("masters %v, held %v; want %v, %v", got, held, test.want, test.held)
			}
			if len(config.Spec.Cluster.Masters) != 1 {
				t.Error("the KVMConfig itself was changed")
			}
		})
	}
}

// TestFoundersAreFinal: once they are recorded, no other master founds, even while no machine is known, because one may
// exist.
func TestFoundersAreFinal(t *testing.T) {
	nodes := state.NewNodes(fixture.MakeCluster("abc12").Masters(3).Obj().Spec)
	founding := map[string]string{key.AnnotationEtcdFounders: nodes[0].ID, key.AnnotationEtcdFounding: "true"}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: founding}}
	if got := state.FoundersOf(namespace, nil, nodes, nil, state.Restore{}); !slices.Equal(got, []string{nodes[0].ID}) {
		t.Errorf("the founders are %v", got)
	}
}

// TestWhenEtcdIsBeingFounded: from the creation of the cluster until a member has reported others or itself, or the API
// server, which needs etcd, responds.
func TestWhenEtcdIsBeingFounded(t *testing.T) {
	config := fixture.MakeCluster("abc12").Masters(1).Obj()
	founding := map[string]string{key.AnnotationEtcdFounders: "m", key.AnnotationEtcdFounding: "true"}
	begun := map[string]string{key.AnnotationEtcdFounders: "m"}
	marked := func(s *state.Cluster) {
		s.Nodes[0].Deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key.AnnotationEtcdMember: "1"}}}
	}
	restoring := func(s *state.Cluster) {
		s.Config.Spec.Etcd = &v1alpha1.EtcdData{
			Snapshots: &v1alpha1.EtcdSnapshots{}, Restore: &v1alpha1.EtcdRestore{Snapshot: "some-20261122T060000Z.db", Generation: 1},
		}
	}
	for name, test := range map[string]struct {
		written map[string]string
		change  func(*state.Cluster)
		retired int
		want    bool
	}{
		"nothing is there":                          {want: true},
		"it is written down":                        {written: founding, want: true},
		"written down, and there are machines":      {written: founding, change: func(s *state.Cluster) { s.Nodes[0].EtcdHost = "host-1" }, want: true},
		"older than what is written":                {written: begun, change: func(s *state.Cluster) { s.Nodes[0].EtcdHost = "host-1" }},
		"the namespace is lost":                     {change: func(s *state.Cluster) { s.Nodes[0].EtcdHost = "host-1" }},
		"the namespace is lost, on volumes":         {change: func(s *state.Cluster) { s.Nodes[0].EtcdClaim = "claim" }},
		"a machine of a removed master is there":    {retired: 1},
		"etcd has told":                             {written: founding, change: func(s *state.Cluster) { s.Etcd.Members = []etcd.Member{{ID: 1, Name: "etcd-m"}} }},
		"a member has run":                          {written: founding, change: marked},
		"the API server answers":                    {written: founding, change: func(s *state.Cluster) { s.Workload.Connected = true }},
		"a snapshot is checked":                     {written: founding, change: restoring},
		"it has begun with a snapshot":              {written: map[string]string{key.AnnotationEtcdFounders: "m", key.AnnotationEtcdRestored: "a.db/1#0"}},
		"it begins with a snapshot":                 {written: map[string]string{key.AnnotationEtcdFounders: "m", key.AnnotationEtcdFounding: "true", key.AnnotationEtcdRestored: "a.db/1#0"}, want: true},
		"it begins with a snapshot, and was marked": {written: map[string]string{key.AnnotationEtcdFounders: "m", key.AnnotationEtcdFounding: "true", key.AnnotationEtcdRestored: "a.db/1#0"}, change: marked, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state.Cluster{Config: config.DeepCopy(), Nodes: state.NewNodes(config.Spec)}
			if test.change != nil {
				test.change(s)
			}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{UID: "1", Annotations: test.written}}
			s.LookAtRestore(namespace, nil, nil)
			retired := make([]state.Node, test.retired)
			s.Founders = state.FoundersOf(namespace, nil, s.Nodes, retired, s.Restore)
			s.LookAtFounding(namespace, retired, nil)
			if s.Founding != test.want {
				t.Errorf("got %t, want %t", s.Founding, test.want)
			}
		})
	}
}
