package behaviour_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// everything returns a client that knows every Kubernetes kind.
func everything(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(theLab.RESTConfig(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// refusal is the API server's policy that rejects some new pods of a cluster.
type refusal struct {
	client client.Client
	config *v1alpha1.KVMConfig
	name   string
}

// refusePods makes the API server reject new pods with the label in a cluster's namespace until lift, as a full host or
// a quota does. It returns once the policy is in force.
func refusePods(t *testing.T, config *v1alpha1.KVMConfig, label, value string) *refusal {
	t.Helper()
	r := &refusal{client: everything(t), config: config, name: config.Spec.Cluster.ID + "-" + value}
	namespace := key.Namespace(config.Spec.Cluster.ID)
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: r.name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: fmt.Sprintf("!has(object.metadata.labels) || !(%[1]q in object.metadata.labels) || object.metadata.labels[%[1]q] != %[2]q", label, value),
			}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: r.name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: r.name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: namespace},
			}},
		},
	}
	for _, object := range []client.Object{policy, binding} {
		if err := r.client.Create(context.Background(), object); err != nil {
			t.Fatal(err)
		}
	}
	probe := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe", Labels: map[string]string{label: value}},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: ptr.To(false), Containers: []corev1.Container{{Name: "probe", Image: "example.org/probe"}}},
	}
	lab.Eventually(t, lab.Timeout, func() error {
		err := r.client.Create(context.Background(), probe.DeepCopy(), client.DryRunAll)
		if apierrors.IsInvalid(err) && strings.Contains(err.Error(), r.name) {
			return nil
		}
		return fmt.Errorf("new pods are not refused yet: %w", err)
	})
	return r
}

// lift ends the refusal and wakes the controllers that back off from it.
func (r *refusal) lift(t *testing.T) {
	t.Helper()
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: r.name}}
	if err := r.client.Delete(context.Background(), binding); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, lab.Timeout, func() error {
		var sets appsv1.ReplicaSetList
		if err := r.client.List(context.Background(), &sets, client.InNamespace(key.Namespace(r.config.Spec.Cluster.ID))); err != nil {
			return err
		}
		missing := 0
		for i := range sets.Items {
			set := &sets.Items[i]
			if set.Status.Replicas < *set.Spec.Replicas {
				missing++
				nudge := []byte(fmt.Sprintf(`{"metadata":{"annotations":{"nudge":"%s"}}}`, set.ResourceVersion))
				if err := r.client.Patch(context.Background(), set, client.RawPatch("application/merge-patch+json", nudge)); err != nil {
					return err
				}
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d ReplicaSets have too few pods", missing)
		}
		return nil
	})
}
