package lab

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/service/controller/cluster"
)

// Timeout is how long a test waits for an expected result. It is generous because machines that run tests are busy.
const Timeout = 4 * time.Minute

// Create creates an object.
func (l *Lab) Create(t testing.TB, object client.Object) {
	t.Helper()
	if err := l.Client.Create(context.Background(), object); err != nil {
		t.Fatalf("creating %s: %s", object.GetName(), err)
	}
}

// Delete deletes an object in the background, as kubectl does.
func (l *Lab) Delete(t testing.TB, object client.Object) {
	t.Helper()
	if err := l.Client.Delete(context.Background(), object, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatalf("deleting %s: %s", object.GetName(), err)
	}
}

// Get reads an object again.
func (l *Lab) Get(t testing.TB, object client.Object) {
	t.Helper()
	if err := l.Client.Get(context.Background(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatalf("reading %s: %s", object.GetName(), err)
	}
}

// Exists reports whether an object exists.
func (l *Lab) Exists(t testing.TB, object client.Object) bool {
	t.Helper()
	err := l.Client.Get(context.Background(), client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
	if client.IgnoreNotFound(err) != nil {
		t.Fatalf("reading %s: %s", object.GetName(), err)
	}
	return err == nil
}

// Change updates an object on the API server and stores the result in object. Others may change it at the same time.
func Change[T client.Object](t testing.TB, l *Lab, object T, by func(T)) {
	t.Helper()
	Eventually(t, Timeout, func() error {
		if err := l.Client.Get(context.Background(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		by(object)
		return l.Client.Update(context.Background(), object)
	})
}

// Current returns the KVMConfig from the API server.
func (l *Lab) Current(t *testing.T, config *v1alpha1.KVMConfig) *v1alpha1.KVMConfig {
	t.Helper()
	current := &v1alpha1.KVMConfig{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: config.Name}}
	l.Get(t, current)
	return current
}

// Condition is a condition that a test expects. An empty message matches any message.
type Condition struct {
	Type, Reason string
	// Message is a part of the condition's, which also names other steps.
	Message string
	Status  metav1.ConditionStatus
}

// AwaitCondition waits until the current generation of the KVMConfig has the conditions.
func (l *Lab) AwaitCondition(t *testing.T, config *v1alpha1.KVMConfig, want ...Condition) {
	t.Helper()
	defer l.explain(t, config)
	Eventually(t, Timeout, func() error {
		current := &v1alpha1.KVMConfig{}
		if err := l.Client.Get(context.Background(), client.ObjectKeyFromObject(config), current); err != nil {
			return err
		}
		if current.Status.ObservedGeneration != current.Generation {
			return fmt.Errorf("generation %d is not observed yet", current.Generation)
		}
		for _, c := range want {
			have := meta.FindStatusCondition(current.Status.Conditions, c.Type)
			if have == nil || have.Status != c.Status || c.Reason != "" && have.Reason != c.Reason || !strings.Contains(have.Message, c.Message) {
				return fmt.Errorf("KVMConfig %s has the condition %+v, want %+v", config.Name, have, c)
			}
		}
		return nil
	})
}

// AwaitReady waits until the current generation of each KVMConfig is Ready.
func (l *Lab) AwaitReady(t *testing.T, configs ...*v1alpha1.KVMConfig) {
	t.Helper()
	for _, config := range configs {
		l.AwaitCondition(t, config, Condition{Type: cluster.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready"})
	}
}

// Rotated returns an error unless the CAs of a cluster are those that its KVMConfig requests and the only trusted ones.
func (l *Lab) Rotated(ctx context.Context, config *v1alpha1.KVMConfig, authorities ...string) error {
	for _, name := range authorities {
		secret := &corev1.Secret{}
		object := client.ObjectKey{Namespace: config.Namespace, Name: key.SecretName(config.Spec.Cluster.ID, name)}
		if err := l.Client.Get(ctx, object, secret); err != nil {
			return err
		}
		have, want := secret.Annotations[key.AnnotationAuthorityGeneration], strconv.FormatInt(config.Spec.Certificates.AuthorityGeneration, 10)
		if have != want || !bytes.Equal(secret.Data[state.SecretKeyCA], secret.Data[state.SecretKeyCertificate]) {
			return fmt.Errorf("CA %s is of generation %q, want %s and no other one trusted", name, have, want)
		}
	}
	return nil
}

// AwaitGone waits until an object no longer exists.
func (l *Lab) AwaitGone(t *testing.T, object client.Object) {
	t.Helper()
	defer l.explain(t, object)
	Eventually(t, Timeout, func() error {
		current := object.DeepCopyObject().(client.Object)
		err := l.Client.Get(context.Background(), client.ObjectKeyFromObject(object), current)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("%T %s still exists with finalizers %v and status %+v", object, object.GetName(), current.GetFinalizers(), conditionsOf(current))
	})
}

func conditionsOf(object client.Object) []metav1.Condition {
	if config, ok := object.(*v1alpha1.KVMConfig); ok {
		return config.Status.Conditions
	}
	return nil
}

// counting is how long a test may count requests.
const counting = 3 * time.Minute

// AwaitSteadyTokens waits until no bootstrap token changes while a test counts requests. At noon and midnight UTC the
// boot data of every cluster gets a new one.
func AwaitSteadyTokens(t testing.TB) {
	t.Helper()
	if left := time.Until(joining.TokensAt("", time.Now()).Next()); left < counting {
		t.Logf("waiting for %s, until bootstrap tokens have changed", left.Round(time.Second))
		// Running operators write the new ones in this time.
		time.Sleep(left + calm)
	}
}

// calm is how long operators may take to write new tokens into boot data.
const calm = 20 * time.Second
