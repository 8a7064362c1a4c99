package addons_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
)

func daemonSet(generation, observed int64, wanted, available int32) appsv1.DaemonSet {
	return appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-flannel", Name: "kube-flannel-ds", Generation: generation},
		Status:     appsv1.DaemonSetStatus{ObservedGeneration: observed, DesiredNumberScheduled: wanted, NumberAvailable: available},
	}
}

func deployment(generation, observed int64, replicas *int32, available int32, condition corev1.ConditionStatus) appsv1.Deployment {
	d := appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns", Generation: generation},
		Spec:       appsv1.DeploymentSpec{Replicas: replicas},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: observed, AvailableReplicas: available},
	}
	if condition != "" {
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: condition}}
	}
	return d
}

func TestWhichAddOnsDoNotServe(t *testing.T) {
	const network, dns = "DaemonSet kube-flannel/kube-flannel-ds ", "Deployment kube-system/coredns "
	for name, test := range map[string]struct {
		daemonSets  []appsv1.DaemonSet
		deployments []appsv1.Deployment
		want        []string
	}{
		"there are none": {},
		"all serve": {
			daemonSets:  []appsv1.DaemonSet{daemonSet(1, 1, 3, 3)},
			deployments: []appsv1.Deployment{deployment(1, 1, ptr.To[int32](2), 2, corev1.ConditionTrue)},
		},
		"a node has no pod network": {
			daemonSets: []appsv1.DaemonSet{daemonSet(1, 1, 3, 2)}, want: []string{network + "is not available on all nodes"},
		},
		"there is no node yet": {
			daemonSets: []appsv1.DaemonSet{daemonSet(1, 1, 0, 0)}, want: []string{network + "has no node to run on yet"},
		},
		"a DaemonSet was changed just now": {
			daemonSets: []appsv1.DaemonSet{daemonSet(2, 1, 3, 3)}, want: []string{network + "has not been observed by its controller yet"},
		},
		"a Deployment was changed just now": {
			deployments: []appsv1.Deployment{deployment(2, 1, nil, 1, corev1.ConditionTrue)}, want: []string{dns + "has not been observed by its controller yet"},
		},
		"DNS has no pod": {
			deployments: []appsv1.Deployment{deployment(1, 1, ptr.To[int32](2), 0, corev1.ConditionFalse)}, want: []string{dns + "has no available pod"},
		},
		"DNS serves with one of two pods": {deployments: []appsv1.Deployment{deployment(1, 1, ptr.To[int32](2), 1, corev1.ConditionTrue)}},
		"a Deployment of the user's needs more pods": {
			deployments: []appsv1.Deployment{deployment(1, 1, ptr.To[int32](9), 1, corev1.ConditionFalse)}, want: []string{dns + "has too few available pods"},
		},
		"a Deployment of the user's is scaled to zero": {deployments: []appsv1.Deployment{deployment(1, 1, ptr.To[int32](0), 0, "")}},
		"without replicas one is wanted":               {deployments: []appsv1.Deployment{deployment(1, 1, nil, 0, "")}, want: []string{dns + "has no available pod"}},
		"all are listed in order": {
			daemonSets: []appsv1.DaemonSet{daemonSet(1, 1, 3, 2)}, deployments: []appsv1.Deployment{deployment(1, 1, nil, 0, "")},
			want: []string{network + "is not available on all nodes", dns + "has no available pod"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, addons.Unavailable(test.daemonSets, test.deployments)); diff != "" {
				t.Errorf("unavailable (-want +got):\n%s", diff)
			}
		})
	}
}
