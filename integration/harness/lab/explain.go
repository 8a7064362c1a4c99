package lab

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// explain logs, once a test has failed, what is known about a cluster that did not reach the expected state: its
// machines on the API server, and the state of the operators of this process.
func (l *Lab) explain(t *testing.T, object client.Object) {
	config, ok := object.(*v1alpha1.KVMConfig)
	if !ok || !t.Failed() {
		return
	}
	namespace := key.Namespace(config.Spec.Cluster.ID)
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &corev1.PodList{}} {
		if err := l.Client.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
			t.Logf("%T: %v", list, err)
			continue
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			t.Logf("%T: %v", list, err)
		}
		for _, item := range items {
			t.Log(describe(item.(client.Object)))
		}
	}
	var stacks bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
		t.Log(err)
	}
	for stack := range strings.SplitSeq(stacks.String(), "\n\n") {
		if strings.Contains(stack, "kvm-operator/pkg/") || strings.Contains(stack, "kvm-operator/service/") {
			t.Log(stack)
		}
	}
}

func describe(object client.Object) string {
	text := fmt.Sprintf("%T %s version %s deleted %v finalizers %v", object, object.GetName(), object.GetResourceVersion(),
		object.GetDeletionTimestamp(), object.GetFinalizers())
	if pod, ok := object.(*corev1.Pod); ok {
		text += fmt.Sprintf(" on %q %s", pod.Spec.NodeName, pod.Status.Phase)
	}
	return text
}
