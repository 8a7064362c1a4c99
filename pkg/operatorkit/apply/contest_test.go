package apply_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// TestAnotherControllerThatNeverStopsIsTold: it changes an object back as soon as that is put right. Without an end both would
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
	want := b.in(`ConfigMap NS/a is changed by another client (field manager "somebody") each time that the operator has put it right, so it is put right once a minute only; have that client leave it alone`)
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
