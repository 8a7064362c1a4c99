package chaos

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// strangers are objects of nobody that an operator might take for its own: they have the names of its objects.
type strangers []stranger

type stranger struct {
	client client.Client
	object client.Object
}

// settle makes them: in the management cluster, and in the workload clusters.
func (w *World) settle(ctx context.Context) error {
	elsewhere := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "strangers", Name: name} }
	pod := &corev1.Pod{ObjectMeta: elsewhere("worker-w0aaa-1"), Spec: corev1.PodSpec{
		// Nobody gives it a host, so nobody has a reason to change it.
		SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.org/never"}},
		Containers:      []corev1.Container{{Name: "stranger", Image: "example.org/stranger"}},
	}}
	pod.Labels = map[string]string{key.LabelApp: key.RoleWorker}
	for _, s := range (strangers{
		{w.lab.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "strangers"}}},
		{w.lab.Client, &corev1.ConfigMap{ObjectMeta: elsewhere(key.RoleMaster)}},
		{w.lab.Client, &corev1.Secret{ObjectMeta: elsewhere("x00-api")}},
		{w.lab.Client, &corev1.Service{ObjectMeta: elsewhere(key.RoleMaster), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}}},
		{w.lab.Client, pod},
		// Its machine is somebody's, and so is what runs there.
		{w.server.Client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-w0aaa-1"}}},
		{w.server.Client, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "stranger"}}},
	}) {
		if err := s.client.Create(ctx, s.object); err != nil {
			return err
		}
		w.strangers = append(w.strangers, s)
	}
	return nil
}

// touched says which of them somebody has changed or removed. Kubernetes itself does nothing to them.
func (all strangers) touched(ctx context.Context) (violations []string) {
	for _, s := range all {
		now := s.object.DeepCopyObject().(client.Object)
		what := fmt.Sprintf("%T %s of a stranger", s.object, s.object.GetName())
		switch err := s.client.Get(ctx, client.ObjectKeyFromObject(s.object), now); {
		case err != nil:
			violations = append(violations, fmt.Sprintf("%s: %s", what, err))
		case now.GetUID() != s.object.GetUID() || now.GetResourceVersion() != s.object.GetResourceVersion():
			violations = append(violations, what+" was changed")
		}
	}
	return violations
}
