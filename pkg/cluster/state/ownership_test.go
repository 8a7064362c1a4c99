package state_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// marked returns the annotations of an object of the KVMConfig default/ab1cd with the UID; "" is the form of earlier
// operators.
func marked(uid types.UID, handler string) map[string]string {
	if uid == "" {
		return map[string]string{ownership.Annotation: "default/ab1cd/" + handler}
	}
	return ownership.Owner{Kind: key.KindKVMConfig, Namespace: "default", Name: "ab1cd", UID: uid, Handler: handler}.Annotations()
}

// TestWhoseTheNamespaceIs: the owner annotation proves nothing without the UID, because anyone who creates a namespace
// can set it. A namespace with another UID, or with none, is proven to be the cluster's by objects that only those can
// write who are trusted with the cluster.
func TestWhoseTheNamespaceIs(t *testing.T) {
	handedOver := map[string]string{key.LabelGSCluster: "ab1cd"}
	made := metav1.Condition{Type: "NamespaceReady", Status: metav1.ConditionTrue, Reason: "Done"}
	refused := metav1.Condition{Type: "NamespaceReady", Status: metav1.ConditionFalse, Reason: "OwnedByOther"}
	waits := metav1.Condition{Type: "NamespaceReady", Status: metav1.ConditionFalse, Reason: "Blocked"}
	beside := func(uid types.UID) corev1.Secret {
		return keySecret("default", "encryption", encryptionKey, "x", annotated(marked(uid, "randomkey")))
	}
	for name, test := range map[string]struct {
		annotations, labels map[string]string
		condition           *metav1.Condition
		deleting            bool
		beside              []corev1.Secret
		want                state.Hold
	}{
		"its own":                                    {annotations: marked("1", "namespace"), want: state.HoldOwn},
		"of a former one, without proof":             {annotations: marked("0", "namespace"), want: state.HoldForeign},
		"of a former one, and refused":               {annotations: marked("0", "namespace"), condition: &refused, want: state.HoldForeign},
		"of a former one, not checked yet":           {annotations: marked("0", "namespace"), condition: &waits, want: state.HoldForeign},
		"of a former one, whose Secrets are here":    {annotations: marked("0", "namespace"), beside: []corev1.Secret{beside("0")}, want: state.HoldFormer},
		"of a former one, with Secrets of another":   {annotations: marked("0", "namespace"), beside: []corev1.Secret{beside("1"), beside("")}, want: state.HoldForeign},
		"of a former one, the status was restored":   {annotations: marked("0", "namespace"), condition: &made, want: state.HoldFormer},
		"of an earlier operator":                     {annotations: marked("", "namespace"), condition: &made, want: state.HoldFormer},
		"of an earlier operator, status lost":        {annotations: marked("", "namespace"), beside: []corev1.Secret{beside("")}, want: state.HoldFormer},
		"of an earlier operator, forged":             {annotations: marked("", "namespace"), want: state.HoldForeign},
		"of an earlier operator, forged and refused": {annotations: marked("", "namespace"), condition: &refused, deleting: true, want: state.HoldForeign},
		"of an earlier operator, on deletion":        {annotations: marked("", "namespace"), condition: &waits, deleting: true, want: state.HoldFormer},
		"with Secrets forged elsewhere": {
			annotations: marked("0", "namespace"), want: state.HoldForeign,
			beside: []corev1.Secret{keySecret("acme", "encryption", encryptionKey, "x", annotated(marked("0", "randomkey")))},
		},
		"of another kind":               {annotations: ownership.Owner{Kind: "VirtualMachine.kvm.example.org", Namespace: "default", Name: "ab1cd", UID: "1", Handler: "namespace"}.Annotations(), condition: &made, want: state.HoldForeign},
		"of another KVMConfig":          {annotations: map[string]string{ownership.Annotation: "default/other/namespace"}, labels: handedOver, condition: &made, want: state.HoldForeign},
		"of another handler":            {annotations: marked("1", "service"), want: state.HoldForeign},
		"handed over":                   {labels: handedOver, want: state.HoldOffered},
		"no owner":                      {want: state.HoldForeign},
		"of the original":               {labels: map[string]string{key.LabelCluster: "ab1cd", key.LabelCustomer: "acme"}, want: state.HoldForeign},
		"handed over to another one":    {labels: map[string]string{key.LabelGSCluster: "other"}, want: state.HoldForeign},
		"its owner cannot be read":      {annotations: map[string]string{ownership.Annotation: "x"}, labels: handedOver, condition: &made, want: state.HoldForeign},
		"its own, whatever it was once": {annotations: marked("1", "namespace"), condition: &refused, want: state.HoldOwn},
	} {
		t.Run(name, func(t *testing.T) {
			config := kvmConfig()
			config.UID = "1"
			if test.condition != nil {
				config.Status.Conditions = []metav1.Condition{*test.condition}
			}
			if test.deleting {
				config.DeletionTimestamp = &metav1.Time{Time: now.Time}
			}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ab1cd", UID: "n", Annotations: test.annotations, Labels: test.labels}}
			if got := state.HoldOf(namespace, config, test.beside); got != test.want {
				t.Errorf("the namespace is %s, want %s", got, test.want)
			}
		})
	}
	if got := state.HoldOf(&corev1.Namespace{}, kvmConfig(), nil); got != state.HoldNone {
		t.Errorf("a namespace that does not exist is %s", got)
	}
}

func annotated(annotations map[string]string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Annotations = annotations }
}

// TestPlacesOfACluster: an object elsewhere is neither listed nor waited for.
func TestPlacesOfACluster(t *testing.T) {
	at := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	s := &state.Cluster{Config: kvmConfig(), Hold: state.HoldOwn}
	for name, test := range map[string]struct {
		object client.Object
		want   bool
	}{
		"a Secret beside the KVMConfig":   {&corev1.Secret{ObjectMeta: at("default", "ab1cd-api")}, true},
		"a Secret of another name":        {&corev1.Secret{ObjectMeta: at("default", "other-api")}, false},
		"another kind beside it":          {&appsv1.Deployment{ObjectMeta: at("default", "ab1cd-api")}, false},
		"a machine":                       {&appsv1.Deployment{ObjectMeta: at("ab1cd", "master-m0aaa")}, true},
		"the namespace":                   {&corev1.Namespace{ObjectMeta: at("", "ab1cd")}, true},
		"another namespace":               {&corev1.Namespace{ObjectMeta: at("", "acme")}, false},
		"the first role binding":          {&rbacv1.ClusterRoleBinding{ObjectMeta: at("", "ab1cd")}, true},
		"the second role binding":         {&rbacv1.ClusterRoleBinding{ObjectMeta: at("", "ab1cd-psp")}, true},
		"a role binding of another owner": {&rbacv1.ClusterRoleBinding{ObjectMeta: at("", "admins")}, false},
	} {
		if got := s.Places().Counts(test.object); got != test.want {
			t.Errorf("%s counts: %t, want %t", name, got, test.want)
		}
	}
	for hold, want := range map[state.Hold]int{
		state.HoldNone: 2, state.HoldOwn: 2, state.HoldFormer: 2, state.HoldOffered: 2, state.HoldForeign: 1,
	} {
		s.Hold = hold
		if got := s.Places().Namespaces; len(got) != want || got[0] != "default" {
			t.Errorf("with a namespace that is %s, objects are looked for in %v", hold, got)
		}
	}
}
