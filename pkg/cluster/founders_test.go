package cluster_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// TestFoundersStayUntilEtcdHasBegun: the machine of one of them may run and know the others, whether or not the cache shows any machine.
// Afterwards the spec counts.
func TestFoundersStayUntilEtcdHasBegun(t *testing.T) {
	config := fixture.MakeCluster("abc12").Masters(1).Obj()
	only := config.Spec.Cluster.Masters[0].ID
	own := key.Owner(config.Namespace, config.Name, "namespace")
	for name, test := range map[string]struct {
		namespace map[string]string
		want      []string
		held      []string
	}{
		"two have left": {map[string]string{key.AnnotationOwner: own, key.AnnotationEtcdFounders: only + ",m8,m9", key.AnnotationEtcdFounding: "true"},
			[]string{only, "m8", "m9"}, []string{"m8", "m9"}},
		"all have":      {map[string]string{key.AnnotationOwner: own, key.AnnotationEtcdFounders: "m9", key.AnnotationEtcdFounding: "true"}, []string{only, "m9"}, []string{"m9"}},
		"none has":      {map[string]string{key.AnnotationOwner: own, key.AnnotationEtcdFounders: only, key.AnnotationEtcdFounding: "true"}, []string{only}, nil},
		"it has begun":  {map[string]string{key.AnnotationOwner: own, key.AnnotationEtcdFounders: only + ",m9"}, []string{only}, nil},
		"of a stranger": {map[string]string{key.AnnotationOwner: "x/y/namespace", key.AnnotationEtcdFounders: "m9", key.AnnotationEtcdFounding: "true"}, []string{only}, nil},
		"no namespace":  {nil, []string{only}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{UID: "1", Annotations: test.namespace}}
			complete, held := cluster.HoldFounders(config, namespace)
			var got []string
			for _, n := range cluster.NewNodes(complete.Spec) {
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

// TestFoundersAreFinal: once they are written down, nobody else founds, even while no machine is seen: one may be there.
func TestFoundersAreFinal(t *testing.T) {
	nodes := cluster.NewNodes(fixture.MakeCluster("abc12").Masters(3).Obj().Spec)
	founding := map[string]string{key.AnnotationEtcdFounders: nodes[0].ID, key.AnnotationEtcdFounding: "true"}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: founding}}
	if got := cluster.FoundersOf(namespace, nodes, nil, cluster.Restore{}); !slices.Equal(got, []string{nodes[0].ID}) {
		t.Errorf("the founders are %v", got)
	}
}

// TestWhenEtcdIsBeingFounded: from when the cluster is made until a member has told of others, or of itself.
func TestWhenEtcdIsBeingFounded(t *testing.T) {
	config := fixture.MakeCluster("abc12").Masters(1).Obj()
	founding := map[string]string{key.AnnotationEtcdFounders: "m", key.AnnotationEtcdFounding: "true"}
	known := etcd.State{Members: []etcd.Member{{ID: 1, Name: "etcd-m"}}}
	for name, test := range map[string]struct {
		uid     string
		written map[string]string
		etcd    etcd.State
		marked  bool
		restore string
		want    bool
	}{
		"nothing is there":                          {want: true},
		"it is written down":                        {uid: "1", written: founding, want: true},
		"the cluster is older than what is written": {uid: "1", written: map[string]string{key.AnnotationEtcdFounders: "m"}},
		"etcd has told":                             {uid: "1", written: founding, etcd: known},
		"a member has run":                          {uid: "1", written: founding, marked: true},
		"it begins with a snapshot":                 {restore: "some-20261122T060000Z.db"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &cluster.Snapshot{Config: config.DeepCopy(), Nodes: cluster.NewNodes(config.Spec), Etcd: test.etcd}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{UID: "1", Annotations: test.written}}
			if test.uid == "" {
				namespace = &corev1.Namespace{}
			}
			if test.marked {
				s.Nodes[0].Deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key.AnnotationEtcdMember: "1"}}}
			}
			if test.restore != "" {
				s.Config.Spec.Etcd = &v1alpha1.EtcdData{
					Snapshots: &v1alpha1.EtcdSnapshots{}, Restore: &v1alpha1.EtcdRestore{Snapshot: test.restore, Generation: 1},
				}
				s.LookAtRestore(namespace, nil, nil)
			}
			s.LookAtFounding(namespace, nil)
			if s.Founding != test.want {
				t.Errorf("got %t", s.Founding)
			}
		})
	}
}
