package apply_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// TestAnotherControllerThatNeverStopsIsTold: it changes an object back as soon as that is corrected. Without an end both would
// write as fast as the API server answers.
func TestAnotherControllerThatNeverStopsIsTold(t *testing.T) {
	b, at := newBench(t), clocktesting.NewFakePassiveClock(time.Now())
	b.engine = apply.New(cached, live, at)
	wanted := b.configMap("a", map[string]string{"k": "ours"})
	b.apply(set(wanted))
	writes := func(passes int) (n int, err error) {
		for range passes {
			foreign(t, wanted, func(m *corev1.ConfigMap) { m.Data["k"] = "theirs" })
			before := now(t, wanted).ResourceVersion
			err = b.try(set(wanted))
			seen(t, wanted)
			if now(t, wanted).ResourceVersion != before {
				n++
			}
		}
		return n, err
	}
	n, err := writes(25)
	p, ok := problem.As(err)
	want := b.in(`ConfigMap NS/a is changed by another client (field manager "another") each time that the operator has corrected it, so the operator corrects it once a minute only; have that client leave it alone`)
	if n != 10 || !ok || p.Reason != "Contested" || p.Message != want {
		t.Fatalf("%d writes, then %v", n, err)
	}
	at.SetTime(at.Now().Add(55 * time.Second))
	if n, err := writes(5); n != 1 || err == nil {
		t.Errorf("a minute later there are %d writes, and %v", n, err)
	}
	equal(t, "requests for another intent", []string{"PATCH"}, b.apply(set(b.configMap("a", map[string]string{"k": "new"}))))
	foreign(t, wanted, func(m *corev1.ConfigMap) { m.Data["k"] = "theirs" })
	at.SetTime(at.Now().Add(3 * time.Minute))
	if n, err := writes(3); n != 3 || err != nil {
		t.Errorf("after it has stopped there are %d writes, and %v", n, err)
	}
}

// TestAnotherControllerThatDeletesAgainAndAgainIsTold: it removes what its policy does not allow.
func TestAnotherControllerThatDeletesAgainAndAgainIsTold(t *testing.T) {
	b, at := newBench(t), clocktesting.NewFakePassiveClock(time.Now())
	b.engine = apply.New(cached, live, at)
	wanted := b.configMap("a", map[string]string{"k": "ours"})
	b.apply(set(wanted))
	creations := func(passes int) (n int, err error) {
		for range passes {
			if exists(t, wanted) {
				do(t, direct.Delete(t.Context(), b.configMap("a", nil)))
			}
			seen(t, wanted)
			if err = b.try(set(wanted)); err == nil {
				n++
			}
		}
		return n, err
	}
	n, err := creations(25)
	p, ok := problem.As(err)
	if n != 10 || !ok || p.Reason != "Contested" || !strings.HasPrefix(p.Message, b.in("ConfigMap NS/a is deleted by another client each time")) {
		t.Fatalf("%d creations, then %v", n, err)
	}
	at.SetTime(at.Now().Add(55 * time.Second))
	if n, err := creations(5); n != 1 || err == nil {
		t.Errorf("a minute later there are %d creations, and %v", n, err)
	}
	at.SetTime(at.Now().Add(55 * time.Second))
	equal(t, "requests after it has stopped", []string{"POST"}, b.apply(set(wanted)))
	b.apply(apply.Set{Kinds: []client.Object{&corev1.ConfigMap{}}})
	seen(t, wanted)
	for range 12 { // what the operator has deleted itself is no contest
		b.apply(set(wanted))
		b.apply(apply.Set{Kinds: []client.Object{&corev1.ConfigMap{}}})
		seen(t, wanted)
	}
}
