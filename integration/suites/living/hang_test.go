package living_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// writesHang makes the API server wait for a webhook that does not answer, as it does when the pods of a webhook are
// gone.
func writesHang(t *testing.T, l *living) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, and there is no answer
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	inside, err := kubernetes.NewForConfig(l.RESTConfig())
	must(t, err)
	webhooks := inside.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	webhook := admissionv1.ValidatingWebhook{
		Name: "mute.example.org", SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		ClientConfig:   admissionv1.WebhookClientConfig{URL: ptr.To("https://" + listener.Addr().String())},
		TimeoutSeconds: ptr.To[int32](30), FailurePolicy: ptr.To(admissionv1.Fail),
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem}},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}},
	}
	mute := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "mute"}, Webhooks: []admissionv1.ValidatingWebhook{webhook}}
	_, err = webhooks.Create(t.Context(), mute, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = webhooks.Delete(context.Background(), mute.Name, metav1.DeleteOptions{}) })
	settings := inside.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	lab.Eventually(t, patience, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
		if _, err := settings.Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return errNotYet
	})

	must(t, settings.Delete(t.Context(), "coredns", metav1.DeleteOptions{}))
	l.await(t, wanted{kind: "AddOnsReady", status: metav1.ConditionFalse, reason: chain.ReasonRequestTimeout})
	first, second := l.pod(t, "w0aaa"), l.pod(t, "w1aaa")
	l.report(t, first, unwell())
	l.awaitBehind(t, key.RoleWorker, second)
	l.report(t, first, ready())
	l.awaitBehind(t, key.RoleWorker, first, second)

	must(t, webhooks.Delete(t.Context(), mute.Name, metav1.DeleteOptions{}))
	l.await(t, isTrue("AddOnsReady"), isTrue("Ready"))
}
