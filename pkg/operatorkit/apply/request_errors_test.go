package apply_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// through makes the bench's engine use an interceptor.
func (b *bench) through(funcs interceptor.Funcs) {
	b.engine = apply.New(interceptor.NewClient(unwatched{cached}, funcs), live, clock.RealClock{})
	b.engine.Adopts = key.Adopts
}

// unwatched turns the cached client into one that interceptor accepts; it is never used to watch.
type unwatched struct{ client.Client }

// Watch is never called.
func (unwatched) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errors.New("this client does not watch")
}

// TestTextsOfErrorsAreStable: they are part of conditions, and a text that differs each time is written each time.
func TestTextsOfErrorsAreStable(t *testing.T) {
	maps := schema.GroupResource{Resource: "configmaps"}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"a conflict":        {apierrors.NewConflict(maps, "a", errors.New("resourceVersion 4711")), "create ConfigMap NS/a: another client changed it at the same time"},
		"too many requests": {apierrors.NewTooManyRequests("try again in 7s", 7), "create ConfigMap NS/a: the API server asks for fewer requests"},
		"an internal error": {apierrors.NewInternalError(errors.New("request id 4711")), "create ConfigMap NS/a: the API server answers InternalError"},
		"a webhook is down": {
			apierrors.NewInternalError(errors.New(`failed calling webhook "labels.example.org": failed to call webhook: Post "https://10.1.2.3:443/?timeout=10s": EOF`)),
			"create ConfigMap NS/a: the API server cannot call the webhook labels.example.org, which has to admit it",
		},
		"a timeout":                {apierrors.NewServerTimeout(maps, "create", 3), "create ConfigMap NS/a: the API server answers ServerTimeout"},
		"no answer":                {errors.New("dial tcp 127.0.0.1:40817: connection refused"), "create ConfigMap NS/a: the API server did not answer"},
		"the context ended":        {context.DeadlineExceeded, "create ConfigMap NS/a: the API server did not answer"},
		"what is repeated in full": {apierrors.NewForbidden(maps, "a", errors.New("quota")), `create ConfigMap NS/a: configmaps "a" is forbidden: quota`},
		"a namespace that is not":  {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "x"), `create ConfigMap NS/a: namespaces "x" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.through(interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return test.err }})
			err := b.try(set(b.configMap("a", nil)))
			equal(t, "text", b.in(test.want), err.Error())
			if _, isProblem := problem.As(err); isProblem || !errors.Is(err, test.err) {
				t.Errorf("it is not retried, or its cause is lost: %v", err)
			}
		})
	}
}

// TestWordsOfADenialAreSteady: a webhook may give each denial a number. A condition with the number would be written with each
// pass, and cause the next one.
func TestWordsOfADenialAreSteady(t *testing.T) {
	b, at := newBench(t), clocktesting.NewFakePassiveClock(time.Now())
	attempts := 0
	deny := func(text string) error {
		attempts++
		return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", fmt.Errorf("%s, denial %d", text, attempts))
	}
	words := "owner is missing"
	b.engine = apply.New(interceptor.NewClient(unwatched{cached}, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return deny(words)
		},
	}), live, at)
	first := b.try(set(b.configMap("a", nil))).Error()
	equal(t, "text", b.in(`create ConfigMap NS/a: configmaps "a" is forbidden: owner is missing, denial 1`), first)
	for range 3 {
		err := b.try(set(b.configMap("a", nil)))
		if !apierrors.IsForbidden(err) || err.Error() != first {
			t.Errorf("the next pass says %v", err)
		}
	}
	equal(t, "attempts, which nothing delays", 4, attempts)
	equal(t, "text for another object", b.in(`create ConfigMap NS/b: configmaps "a" is forbidden: owner is missing, denial 5`), b.try(set(b.configMap("b", nil))).Error())
	words = "team is missing"
	at.SetTime(at.Now().Add(11 * time.Second))
	equal(t, "text later", b.in(`create ConfigMap NS/a: configmaps "a" is forbidden: team is missing, denial 6`), b.try(set(b.configMap("a", nil))).Error())
}

// TestWhatTheAPIServerCallsInvalid is a problem that a person has to fix, and is not retried at once.
func TestWhatTheAPIServerCallsInvalid(t *testing.T) {
	b := newBench(t)
	service := func(port int32) *corev1.Service {
		return &corev1.Service{ObjectMeta: b.meta("a"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port, TargetPort: intstr.FromInt32(80)}}}}
	}
	want := b.in(`Refused: the API server refuses to create Service NS/a: Service "a" is invalid: spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive`)
	equal(t, "problem", want, said(t, b.try(set(service(70000)))))
	asked.take()
	equal(t, "problem of the next pass", want, said(t, b.try(set(service(70000)))))
	equal(t, "requests of the next pass", []string(nil), asked.take())
	equal(t, "requests for another intent", []string{"POST"}, b.apply(set(service(80))))
}

// TestLostRaces: decisions on outdated objects overwrite nothing.
func TestLostRaces(t *testing.T) {
	t.Run("another client recreated the object", func(t *testing.T) {
		b := newBench(t)
		b.apply(set(b.configMap("a", map[string]string{"k": "1"})))
		b.apply(set(b.configMap("a", map[string]string{"k": "2"})))
		theirs := b.configMap("a", map[string]string{"their": "data"})
		b.through(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			do(t, direct.Delete(ctx, b.configMap("a", nil)))
			do(t, direct.Create(ctx, theirs))
			return c.Patch(ctx, object, patch, options...)
		}})
		err := b.try(set(b.configMap("a", map[string]string{"k": "3"})))
		if !apply.IsOutdated(err) {
			t.Errorf("err = %v, want one that says outdated", err)
		}
		equal(t, "their object", theirs.ResourceVersion, now(t, theirs).ResourceVersion)
	})
	t.Run("another replica recorded a step in the namespace", func(t *testing.T) {
		b := newBench(t)
		at := func(step string) *corev1.Namespace {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace + "-record", Labels: b.meta("").Labels, Annotations: map[string]string{"step": step}}}
		}
		b.apply(set(at("1")))
		b.apply(set(at("2")))
		b.through(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			theirs := now(t, at(""))
			theirs.Annotations["step"] = "4"
			do(t, direct.Update(ctx, theirs))
			return c.Patch(ctx, object, patch, options...)
		}})
		if err := b.try(set(at("3"))); !apply.IsOutdated(err) {
			t.Errorf("err = %v, want one that says outdated", err)
		}
		equal(t, "the step", "4", now(t, at("")).Annotations["step"])
	})
	t.Run("the object has gone", func(t *testing.T) {
		b := newBench(t)
		b.apply(set(b.configMap("a", map[string]string{"k": "1"})))
		b.apply(set(b.configMap("a", map[string]string{"k": "2"})))
		b.through(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			do(t, direct.Delete(ctx, b.configMap("a", nil)))
			return c.Patch(ctx, object, patch, options...)
		}})
		err := b.try(set(b.configMap("a", map[string]string{"k": "3"})))
		equal(t, "text", b.in("apply ConfigMap NS/a: another client changed it at the same time"), err.Error())
		equal(t, "recreated with a part of its content", false, exists(t, b.configMap("a", nil)))
	})
	t.Run("the object exists and is gone again", func(t *testing.T) {
		b := newBench(t)
		b.through(interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "configmaps"}, "a")
		}})
		if err := b.try(set(b.configMap("a", nil))); !apply.IsOutdated(err) {
			t.Errorf("err = %v, want one that says outdated", err)
		}
	})
	t.Run("another client created the same name first", func(t *testing.T) {
		b := newBench(t)
		theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "a"}}
		b.through(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			do(t, direct.Create(ctx, theirs))
			return c.Create(ctx, object, options...)
		}})
		want := b.in("NotOwned: ConfigMap NS/a exists and is not managed by this operator, so it is left alone; delete it, or hand it over with the label giantswarm.io/cluster=NS")
		equal(t, "problem", want, said(t, b.try(set(b.configMap("a", nil)))))
		equal(t, "their object", theirs.ResourceVersion, now(t, theirs).ResourceVersion)
	})
}
