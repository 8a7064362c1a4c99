package behaviour_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// harm is a change that a user may make to an object by hand.
type harm struct {
	object client.Object
	change func(client.Object)
	// kept reports that a deleted object remains for as long as it is in use.
	kept bool
}

func harms(config *v1alpha1.KVMConfig) map[string]harm {
	id := config.Spec.Cluster.ID
	return map[string]harm{
		"Deployment": {object: &appsv1.Deployment{ObjectMeta: in(config, "worker-w0aaa")}, change: func(o client.Object) {
			spec := &o.(*appsv1.Deployment).Spec
			spec.Replicas, spec.Template.Spec.Containers[0].Image = ptr.To[int32](0), "example.org/other"
		}},
		"ConfigMap": {object: &corev1.ConfigMap{ObjectMeta: in(config, "worker-"+id+"-w0aaa")}, change: func(o client.Object) {
			o.(*corev1.ConfigMap).Data = map[string]string{"user_data": "nonsense"}
		}},
		"Secret with boot data": {object: &corev1.Secret{ObjectMeta: in(config, "worker-"+id+"-w0aaa")}, change: func(o client.Object) {
			o.(*corev1.Secret).Data = nil
		}},
		"Secret with the kubeconfig": {object: &corev1.Secret{ObjectMeta: in(config, id+"-kubeconfig")}, change: func(o client.Object) {
			o.(*corev1.Secret).Data["kubeConfig"] = []byte("nonsense")
		}},
		"Service": {object: &corev1.Service{ObjectMeta: in(config, "master")}, change: func(o client.Object) {
			o.(*corev1.Service).Spec.Ports = o.(*corev1.Service).Spec.Ports[:1]
		}},
		"EndpointSlice": {object: &discoveryv1.EndpointSlice{ObjectMeta: in(config, "worker")}, change: func(o client.Object) {
			o.(*discoveryv1.EndpointSlice).Endpoints = nil
		}},
		"Endpoints": {object: &corev1.Endpoints{ObjectMeta: in(config, "worker")}, change: func(o client.Object) {
			o.(*corev1.Endpoints).Subsets = nil
		}},
		"Ingress": {object: &networkingv1.Ingress{ObjectMeta: in(config, "api")}, change: func(o client.Object) {
			o.(*networkingv1.Ingress).Spec.Rules[0].Host = "elsewhere.example.org"
		}},
		"NetworkPolicy": {object: &networkingv1.NetworkPolicy{ObjectMeta: in(config, "node-pods")}, change: func(o client.Object) {
			o.(*networkingv1.NetworkPolicy).Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
		}},
		"ServiceAccount": {object: &corev1.ServiceAccount{ObjectMeta: in(config, id)}, change: func(o client.Object) {
			o.(*corev1.ServiceAccount).AutomountServiceAccountToken = ptr.To(true)
		}},
		"ClusterRoleBinding": {object: &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: id}}, change: func(o client.Object) {
			o.(*rbacv1.ClusterRoleBinding).Subjects = nil
		}},
		"PersistentVolumeClaim": {object: &corev1.PersistentVolumeClaim{ObjectMeta: in(config, "local-pvc-worker-"+id+"-w0aaa-"+id)}, kept: true, change: func(o client.Object) {
			o.SetLabels(map[string]string{key.LabelManagedBy: key.Operator})
		}},
		"Namespace": {object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: id}}, kept: true, change: func(o client.Object) {
			o.GetLabels()[key.LabelPodSecurityEnforce] = "restricted"
		}},
	}
}

func TestWhatIsChangedByHandComesBack(t *testing.T) {
	t.Parallel()
	create(t, fixture.MakeVolume("drift1", "drift1"))
	config := createReady(t, makeCluster("drift1").Workers(1).HostVolume(0, "drift1", "/data").Obj())
	all := harms(config)
	// The Deployment is the last one, because it replaces the worker, and with it what others lead to.
	const last = "Deployment"
	order := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return name == last })
	for _, name := range append(order, last) {
		h := all[name]
		t.Run(name, func(t *testing.T) {
			want := content(t, h.object)
			change(t, h.object, h.change)
			lab.Eventually(t, lab.Timeout, func() error { return is(h.object, want) })
		})
	}
	for name, take := range map[string]func(client.Object){
		"the label managed-by":                func(o client.Object) { delete(o.GetLabels(), key.LabelManagedBy) },
		"the annotation that tells its owner": func(o client.Object) { delete(o.GetAnnotations(), ownership.Annotation) },
	} {
		t.Run(name, func(t *testing.T) {
			service := &corev1.Service{ObjectMeta: in(config, "worker")}
			want := content(t, service)
			change(t, service, func(s *corev1.Service) { take(s) })
			lab.Eventually(t, lab.Timeout, func() error { return is(service, want) })
		})
	}
	theLab.AwaitReady(t, config)
}

func TestWhatIsDeletedByHandComesBack(t *testing.T) {
	t.Parallel()
	create(t, fixture.MakeVolume("drift2", "drift2"))
	config := createReady(t, makeCluster("drift2").Workers(1).HostVolume(0, "drift2", "/data").Obj())
	for name, h := range harms(config) {
		if h.kept {
			continue
		}
		t.Run(name, func(t *testing.T) {
			theLab.Get(t, h.object)
			before := h.object.GetUID()
			theLab.Delete(t, h.object)
			lab.Eventually(t, lab.Timeout, func() error { return recreated(h.object, before) })
		})
	}
	theLab.AwaitReady(t, config)
	awaitEndpoints(t, config, key.RoleWorker)
}

func TestDeletedNamespaceComesBackWithEverythingInIt(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("drift3").Workers(1).Obj())
	want := theLab.Dump(t, config)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "drift3"}}
	theLab.Get(t, namespace)
	uid := namespace.UID
	theLab.Delete(t, namespace)
	lab.Eventually(t, lab.Timeout, func() error { return recreated(namespace, uid) })
	lab.Eventually(t, lab.Timeout, func() error {
		if diff := cmp.Diff(names(want), names(theLab.Dump(t, config))); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	awaitEndpoints(t, config, key.RoleWorker)
	theLab.AwaitReady(t, config)
}

func TestDeletedCertificateIsIssuedAnewUnderTheSameAuthority(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("drift4").Obj())
	secret := &corev1.Secret{ObjectMeta: beside(config, "admin")}
	theLab.Get(t, secret)
	before := secret.DeepCopy()
	lab.Eventually(t, lab.Timeout, func() error {
		if err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(before), secret); err != nil {
			return err
		}
		if !bytes.Equal(secret.Data["crt"], before.Data["crt"]) {
			return nil
		}
		// A reconcile that has read the Secret just before restores the same certificate.
		return errors.Join(theLab.Client.Delete(context.Background(), secret), errors.New("the certificate is the old one"))
	})
	if !bytes.Equal(secret.Data["ca"], before.Data["ca"]) {
		t.Error("want a new certificate under the old authority")
	}
	lab.Eventually(t, lab.Timeout, func() error {
		kubeconfig := &corev1.Secret{ObjectMeta: in(config, "drift4-kubeconfig")}
		theLab.Get(t, kubeconfig)
		if !bytes.Contains(kubeconfig.Data["kubeConfig"], base64Of(secret.Data["crt"])) {
			return errors.New("the kubeconfig holds the old certificate")
		}
		return nil
	})
	theLab.AwaitReady(t, config)
	verifyKubeconfig(t, config)
}

func TestForeignLabelsAndAnnotationsStay(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("drift5").Workers(1).Label(key.LabelVersion, "4.0.0").Obj())
	objects := theLab.Objects(t, config)
	if len(objects) < 20 {
		t.Fatalf("only %d objects", len(objects))
	}
	mark := []byte(`{"metadata":{"labels":{"example.org/team":"a"},"annotations":{"example.org/note":"b"}}}`)
	for _, object := range objects {
		if err := theLab.Client.Patch(context.Background(), object, client.RawPatch("application/merge-patch+json", mark)); err != nil {
			t.Fatal(err)
		}
	}
	// The operator has its own reason to write most of them.
	change(t, config, func(c *v1alpha1.KVMConfig) {
		c.Labels[key.LabelVersion] = "4.1.0"
		c.Spec.Cluster.Customer.ID = "umbrella"
		addSSHKey(c)
	})
	theLab.AwaitReady(t, config)
	written := 0
	for _, object := range objects {
		before := object.GetResourceVersion()
		theLab.Get(t, object)
		if object.GetResourceVersion() != before {
			written++
		}
		if object.GetLabels()["example.org/team"] != "a" || object.GetAnnotations()["example.org/note"] != "b" {
			t.Errorf("%T %s has lost what another client set on it", object, object.GetName())
		}
	}
	if written < 10 {
		t.Errorf("only %d of %d objects were written since, which proves little", written, len(objects))
	}
}

func TestDeletedClaimComesBackOnceItsPodHasGone(t *testing.T) {
	t.Parallel()
	create(t, fixture.MakeVolume("drift6", "drift6"))
	config := createReady(t, makeCluster("drift6").Workers(1).HostVolume(0, "drift6", "/data").Obj())
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: in(config, "local-pvc-worker-drift6-w0aaa-drift6")}
	theLab.Get(t, claim)
	uid := claim.UID
	theLab.Delete(t, claim)
	theLab.AwaitCondition(t, config, lab.Condition{
		Type: "InfrastructureReady", Status: metav1.ConditionFalse, Reason: "Terminating",
		Message: "PersistentVolumeClaim drift6/local-pvc-worker-drift6-w0aaa-drift6 is being deleted; the operator creates it again when it is gone",
	})
	theLab.Delete(t, podOf(t, config, "w0aaa"))
	lab.Eventually(t, lab.Timeout, func() error { return recreated(claim, uid) })
}

// content returns an object without the fields that every write changes.
func content(t *testing.T, object client.Object) map[string]any {
	t.Helper()
	theLab.Get(t, object)
	return strip(object)
}

func strip(object client.Object) map[string]any {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object.DeepCopyObject())
	if err != nil {
		panic(err) // objects of the API convert
	}
	delete(content, "status")
	metadata := content["metadata"].(map[string]any)
	for _, name := range []string{"resourceVersion", "generation", "managedFields"} {
		delete(metadata, name)
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		delete(annotations, "deployment.kubernetes.io/revision")
	}
	return content
}

func is(object client.Object, want map[string]any) error {
	if err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(object), object); err != nil {
		return err
	}
	if diff := cmp.Diff(want, strip(object)); diff != "" {
		return errors.New(diff)
	}
	return nil
}

// recreated returns an error unless the object was created again.
func recreated(object client.Object, former types.UID) error {
	if err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(object), object); err != nil {
		return err
	}
	if object.GetUID() == former || object.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s is still the old one", object.GetName())
	}
	return nil
}

func names(dump map[string]string) []string { return slices.Sorted(maps.Keys(dump)) }
