package behaviour_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// create creates KVMConfigs or other objects.
func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		theLab.Create(t, object)
	}
}

// createReady creates a KVMConfig and waits until it is Ready.
func createReady(t *testing.T, config *v1alpha1.KVMConfig) *v1alpha1.KVMConfig {
	t.Helper()
	create(t, config)
	theLab.AwaitReady(t, config)
	return config
}

// change changes an object on the API server.
func change[T client.Object](t *testing.T, object T, by func(T)) {
	t.Helper()
	lab.Change(t, theLab, object, by)
}

// in names an object of the cluster's namespace.
func in(config *v1alpha1.KVMConfig, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: key.Namespace(config.Spec.Cluster.ID), Name: name}
}

// beside names an object in the namespace of the KVMConfig itself.
func beside(config *v1alpha1.KVMConfig, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: config.Namespace, Name: key.SecretName(config.Spec.Cluster.ID, name)}
}

func listPods(config *v1alpha1.KVMConfig, labels client.MatchingLabels) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := theLab.Client.List(context.Background(), list, client.InNamespace(key.Namespace(config.Spec.Cluster.ID)), labels)
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return list.Items, err
}

// podOf returns the only pod of a node.
func podOf(t *testing.T, config *v1alpha1.KVMConfig, node string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	lab.Eventually(t, lab.Timeout, func() error {
		pods, err := listPods(config, client.MatchingLabels{key.LabelNode: node})
		if err == nil && len(pods) != 1 {
			err = fmt.Errorf("node %s has %d pods", node, len(pods))
		}
		if err != nil {
			return err
		}
		pod = &pods[0]
		return nil
	})
	return pod
}

// setReady plays a kubelet that reports a pod as Ready or not Ready.
func setReady(t *testing.T, pod *corev1.Pod, ready bool) {
	t.Helper()
	status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[ready]
	lab.Eventually(t, lab.Timeout, func() error {
		if err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		for i := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady || c.Type == corev1.ContainersReady {
				c.Status = status
			}
		}
		return theLab.Client.Status().Update(context.Background(), pod)
	})
}

// awaitEndpoints waits until Service "master" or "worker" has exactly the pods that are Ready, in EndpointSlice and
// Endpoints.
func awaitEndpoints(t *testing.T, config *v1alpha1.KVMConfig, role string) {
	t.Helper()
	lab.Eventually(t, lab.Timeout, func() error {
		pods, err := listPods(config, client.MatchingLabels{key.LabelApp: role})
		if err != nil {
			return err
		}
		want := []string{}
		for _, pod := range pods {
			if pod.DeletionTimestamp == nil && state.PodReady(&pod) {
				want = append(want, pod.Status.PodIP)
			}
		}
		slices.Sort(want)
		inSlice, inMirror, err := addresses(config, role)
		if err == nil && (!slices.Equal(inSlice, want) || !slices.Equal(inMirror, want)) {
			err = fmt.Errorf("the Ready pods of role %s have the addresses %v, the EndpointSlice %v, the Endpoints %v", role, want, inSlice, inMirror)
		}
		return err
	})
}

// addresses returns the addresses behind a Service from the EndpointSlice and from the Endpoints.
func addresses(config *v1alpha1.KVMConfig, service string) (inSlice, inMirror []string, err error) {
	slice, mirror := &discoveryv1.EndpointSlice{}, &corev1.Endpoints{}
	name := client.ObjectKey{Namespace: key.Namespace(config.Spec.Cluster.ID), Name: service}
	if err := theLab.Client.Get(context.Background(), name, slice); err != nil {
		return nil, nil, err
	}
	if err := theLab.Client.Get(context.Background(), name, mirror); err != nil {
		return nil, nil, err
	}
	if mirror.Labels[key.LabelSkipMirror] != "true" {
		return nil, nil, fmt.Errorf("Endpoints %s would be mirrored: labels %v", name, mirror.Labels)
	}
	inSlice, inMirror = []string{}, []string{}
	for _, e := range slice.Endpoints {
		if *e.Conditions.Ready {
			inSlice = append(inSlice, e.Addresses...)
		}
	}
	for _, s := range mirror.Subsets {
		for _, a := range s.Addresses {
			inMirror = append(inMirror, a.IP)
		}
	}
	slices.Sort(inSlice)
	slices.Sort(inMirror)
	return inSlice, inMirror, nil
}

// bootData returns the versions of a node's ConfigMap and Secret, which change with any write.
func bootData(t *testing.T, config *v1alpha1.KVMConfig, role, node string) [2]string {
	t.Helper()
	name := key.BootDataName(role, config.Spec.Cluster.ID, node)
	public, private := &corev1.ConfigMap{ObjectMeta: in(config, name)}, &corev1.Secret{ObjectMeta: in(config, name)}
	theLab.Get(t, public)
	theLab.Get(t, private)
	return [2]string{public.ResourceVersion, private.ResourceVersion}
}

// nodeHash returns the revision hash in a node's Deployment.
func nodeHash(t *testing.T, config *v1alpha1.KVMConfig, role, node string) string {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: in(config, key.DeploymentName(role, node))}
	theLab.Get(t, d)
	return d.Spec.Template.Annotations[key.AnnotationNodeHash]
}

// addSSHKey changes the boot data of every node.
func addSSHKey(c *v1alpha1.KVMConfig) {
	c.Spec.Cluster.Kubernetes.SSH.UserList = append(c.Spec.Cluster.Kubernetes.SSH.UserList,
		v1alpha1.SSHUser{Name: "alice", PublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl alice"})
}

// releaseOf returns a Release with a supported version of Kubernetes.
func releaseOf(version string) client.Object { return fixture.MakeRelease(version, "1.35.1") }

// addScaling changes the spec in a way that does not matter to the operator, which only reports that it has seen the
// change.
func addScaling(c *v1alpha1.KVMConfig) { c.Spec.Cluster.Scaling.Max++ }

// base64Of encodes bytes as YAML does.
func base64Of(data []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(data)) }
