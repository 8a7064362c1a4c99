package drainer

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// votes is a fake Etcd that knows the members by their names; nothing is known of others.
type votes map[string]etcd.Vote

func (v votes) Vote(_ types.NamespacedName, member string) (vote etcd.Vote, voters int) {
	return v[member], 0
}

func (votes) Ask(context.Context, types.NamespacedName) bool { return true }

// deploymentOf returns the Deployment of a master after a change.
func deploymentOf(id string, change func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ab1cd", Name: key.DeploymentName(key.RoleMaster, id)}}
	change(d)
	return d
}

func runs(*appsv1.Deployment) {}
func goes(d *appsv1.Deployment) {
	d.DeletionTimestamp, d.Finalizers = &metav1.Time{Time: now}, []string{metav1.FinalizerDeleteDependents}
}
func halts(d *appsv1.Deployment) {
	d.Annotations = map[string]string{key.AnnotationEtcdHalted: "true"}
}

// gathered decides on the machine of master m2 of three, whose pod is being deleted and whose machine serves. alone means
// that the machines of the others are down.
func gathered(t *testing.T, members Etcd, alone bool, deployments ...client.Object) drain.Decision {
	t.Helper()
	config := &v1alpha1.KVMConfig{}
	config.Spec.Cluster.Masters = []v1alpha1.Node{{ID: "m1"}, {ID: "m2"}, {ID: "m3"}}
	objects := deployments
	var own *corev1.Pod
	for _, n := range config.Spec.Cluster.Masters {
		pod := masterPod(n.ID)
		pod.Spec.NodeName, pod.Finalizers = "host-"+n.ID, []string{key.FinalizerDrainer}
		for _, c := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue})
		}
		if n.ID == "m2" {
			end := metav1.NewTime(time.Now().Add(nodepod.GracePeriod - time.Minute))
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &end, ptr.To(int64(nodepod.GracePeriod/time.Second))
			own = pod
		} else if alone {
			continue
		}
		objects = append(objects, pod)
	}
	management := fake.NewClientBuilder().WithObjects(objects...).Build()
	r := &Reconciler{Client: management, Live: management, Etcd: members, Clock: clock.RealClock{}}
	state, err := r.Gather(t.Context(), Leaver{Pod: own, config: config})
	if err != nil {
		t.Fatal(err)
	}
	return drain.Decide(state.Machine)
}

// TestMastersOfMembersThatWereTakenOutGo: a person has taken two of three members out, as after a loss of the majority.
// The operator replaces their machines, and both kubelets are Ready. No other master gets a vote before one of these
// machines is gone.
func TestMastersOfMembersThatWereTakenOutGo(t *testing.T) {
	one := votes{pki.EtcdMember("m1"): etcd.VoteGiven, pki.EtcdMember("m2"): etcd.VoteNone, pki.EtcdMember("m3"): etcd.VoteNone}
	if d := gathered(t, one, false, deploymentOf("m1", runs), deploymentOf("m2", goes), deploymentOf("m3", goes)); !d.Release {
		t.Errorf("the machine is kept: %s: %s", d.Reason, d.Message)
	}
	if d := gathered(t, one, false, deploymentOf("m1", runs), deploymentOf("m2", runs), deploymentOf("m3", goes)); d.Release {
		t.Errorf("the machine of a master that is about to join is released: %s", d.Reason)
	}
}

// TestMastersWithoutADeploymentStopForARestore: the Deployment of a master is missing or goes while a snapshot is to
// replace the data of all masters, so nothing can be written to it. The others are stopped, and none of them returns
// before this machine is down.
func TestMastersWithoutADeploymentStopForARestore(t *testing.T) {
	for name, test := range map[string]struct {
		deployments []client.Object
		want        bool
	}{
		"its Deployment says so":                         {[]client.Object{deploymentOf("m2", halts)}, true},
		"its Deployment does not":                        {[]client.Object{deploymentOf("m1", halts), deploymentOf("m2", runs), deploymentOf("m3", halts)}, false},
		"its Deployment is missing, those of others say": {[]client.Object{deploymentOf("m1", halts), deploymentOf("m3", halts)}, true},
		"its Deployment goes, those of others say":       {[]client.Object{deploymentOf("m1", halts), deploymentOf("m2", goes), deploymentOf("m3", halts)}, true},
		"that of another goes, too":                      {[]client.Object{deploymentOf("m1", halts), deploymentOf("m2", goes), deploymentOf("m3", goes)}, true},
		"another one runs":                               {[]client.Object{deploymentOf("m1", halts), deploymentOf("m3", runs)}, false},
		"no Deployment says anything":                    {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := gathered(t, votes{}, true, test.deployments...)
			if got := d.Release && d.Reason == drain.Restoring; got != test.want {
				t.Errorf("it is released for the restore: %t, want %t (%s: %s)", got, test.want, d.Reason, d.Message)
			}
		})
	}
}
