package reconciler_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
)

var errGather = errors.New("the cache is not filled")

// journal is a controller that records what the loop does with it.
type journal struct {
	pod    *corev1.Pod
	gather error
	add    error
	lines  []string
}

func (j *journal) note(line string) { j.lines = append(j.lines, line) }

func (j *journal) Get(context.Context, reconcile.Request) (*corev1.Pod, bool, error) {
	j.note("get")
	return j.pod, j.pod != nil, nil
}

func (j *journal) Gather(context.Context, *corev1.Pod) (*journal, error) {
	j.note("gather")
	return j, j.gather
}

func (j *journal) Store(_ context.Context, _ *corev1.Pod, _ *journal, results []chain.Result) error {
	j.note("store " + results[0].Outcome.Reason)
	return nil
}

func (*journal) Again(_ *journal, after time.Duration) time.Duration { return after + time.Second }

func (j *journal) AddFinalizers(_ context.Context, _ client.Object, names ...string) error {
	for _, name := range names {
		j.note("add " + name)
	}
	return j.add
}

func (j *journal) RemoveFinalizer(_ context.Context, _ client.Object, name string) error {
	j.note("remove " + name)
	return nil
}

// step is a handler with a fixed outcome.
type step struct{ outcome chain.Outcome }

func (step) Name() string { return "step" }

func (s step) EnsureCreated(_ context.Context, j *journal) (chain.Outcome, error) {
	j.note("create")
	return s.outcome, nil
}

func (s step) EnsureDeleted(_ context.Context, j *journal) (chain.Outcome, error) {
	j.note("delete")
	return s.outcome, nil
}

// TestAPassIsNotRepeatedWithoutEnd: nothing is stored while handlers change what the state is made from, but a handler
// that does so in each pass is reported.
func TestAPassIsNotRepeatedWithoutEnd(t *testing.T) {
	j := &journal{pod: &corev1.Pod{}}
	loop := reconciler.Loop[*corev1.Pod, *journal]{
		Name: "test", Controller: j, Finalizers: j, Chain: chain.Chain[*journal]{{Handler: step{chain.Again("a key was created")}}},
	}
	for pass := range 12 {
		j.lines = nil
		if _, err := loop.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		if stored, want := slices.Contains(j.lines, "store Again"), pass%5 == 4; stored != want {
			t.Errorf("in pass %d the status is stored: %t, want %t", pass, stored, want)
		}
	}
}

// TestWhatIsFollowedIsGatheredAgain: the state is gathered again when something begins to be followed, before the chain
// runs.
func TestWhatIsFollowedIsGatheredAgain(t *testing.T) {
	j, changed, failure := &journal{pod: &corev1.Pod{}}, true, error(nil)
	loop := reconciler.Loop[*corev1.Pod, *journal]{
		Name: "test", Controller: j, Finalizers: j, Chain: chain.Chain[*journal]{{Handler: step{chain.Done()}}},
		Follow: func(_ context.Context, j *journal) (bool, error) { j.note("follow"); return changed, failure },
	}
	for _, test := range []struct {
		changed bool
		err     error
		want    []string
	}{
		{changed: true, want: []string{"get", "gather", "follow", "gather", "create", "store Done"}},
		{want: []string{"get", "gather", "follow", "create", "store Done"}},
		{changed: true, err: errGather, want: []string{"get", "gather", "follow"}},
	} {
		j.lines, changed, failure = nil, test.changed, test.err
		if _, err := loop.Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, test.err) {
			t.Errorf("error %v, want %v", err, test.err)
		}
		if diff := cmp.Diff(test.want, j.lines); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestOutcomesAreLoggedOnceForEachObject: what is known of an object ends with it, and neither passes that are repeated
// nor those that are interrupted say anything.
func TestOutcomesAreLoggedOnceForEachObject(t *testing.T) {
	wait, pod := chain.Wait("Starting", "it starts", 0), &corev1.Pod{}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	steps := []struct {
		what    string
		ctx     context.Context
		pod     *corev1.Pod
		outcome chain.Outcome
		lines   int
	}{
		{"the first pass", t.Context(), pod, wait, 1},
		{"the same again", t.Context(), pod, wait, 0},
		{"a pass that is repeated", t.Context(), pod, chain.Again("a key was created"), 0},
		{"an interrupted pass", stopped, pod, chain.Wait("Stopping", "it stops", 0), 0},
		{"the object is gone", t.Context(), nil, wait, 0},
		{"another one of its name", t.Context(), pod, wait, 1},
	}
	j := &journal{}
	loop := reconciler.Loop[*corev1.Pod, *journal]{Name: "test", Controller: j, Finalizers: j}
	for _, s := range steps {
		lines := 0
		logger := funcr.New(func(string, string) { lines++ }, funcr.Options{})
		j.pod, loop.Chain = s.pod, chain.Chain[*journal]{{Handler: step{s.outcome}}}
		if _, err := loop.Reconcile(log.IntoContext(s.ctx, logger), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		if lines != s.lines {
			t.Errorf("%s: %d lines, want %d", s.what, lines, s.lines)
		}
	}
}

// TestAnInterruptedPassIsNoError: an operator that stops does not report the passes that this interrupts as errors.
func TestAnInterruptedPassIsNoError(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	loop := reconciler.Loop[*corev1.Pod, *journal]{Name: "test", Controller: &journal{pod: &corev1.Pod{}, gather: errGather}}
	if _, err := loop.Reconcile(ctx, reconcile.Request{}); !errors.Is(err, errGather) {
		t.Errorf("while the operator runs: error %v, want %v", err, errGather)
	}
	stop()
	if result, err := loop.Reconcile(ctx, reconcile.Request{}); err != nil || result != (reconcile.Result{}) {
		t.Errorf("while the operator stops: result %+v, error %v; want none", result, err)
	}
}

// TestLoop: finalizers are added before anything is done, and removed when everything is deleted.
func TestLoop(t *testing.T) {
	wait := chain.Wait("Starting", "it starts", time.Minute)
	held := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"own"}}}
	conflict := apierrors.NewConflict(schema.GroupResource{}, "pod", nil)
	alive, gone := &corev1.Pod{}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}
	for name, test := range map[string]struct {
		pod      *corev1.Pod
		outcome  chain.Outcome
		gather   error
		add      error
		outdated string
		bare     bool // without finalizers
		want     []string
		after    time.Duration
		err      error
	}{
		"an object that is left alone":     {want: []string{"get"}},
		"one that is created":              {pod: alive, outcome: chain.Done(), want: []string{"get", "add own", "add other", "gather", "create", "store Done"}, after: time.Second},
		"one that waits":                   {pod: alive, outcome: wait, want: []string{"get", "add own", "add other", "gather", "create", "store Starting"}, after: time.Minute + time.Second},
		"one that is deleted":              {pod: gone, outcome: chain.Done(), want: []string{"get", "gather", "delete", "remove own"}},
		"one whose deletion waits":         {pod: gone, outcome: wait, want: []string{"get", "gather", "delete", "store Starting"}, after: time.Minute + time.Second},
		"a chain with own finalizers":      {pod: gone, outcome: chain.Done(), bare: true, want: []string{"get", "gather", "create", "store Done"}, after: time.Second},
		"finalizers are refused":           {pod: alive, add: errGather, want: []string{"get", "add own", "add other"}, err: errGather},
		"those of others are refused":      {pod: held, add: errGather, outcome: chain.Done(), want: []string{"get", "add own", "add other", "gather", "create", "store Done"}, after: time.Second, err: errGather},
		"it has changed since it was read": {pod: held, add: conflict, want: []string{"get", "add own", "add other"}, err: conflict},
		"what cannot be gathered":          {pod: alive, gather: errGather, want: []string{"get", "add own", "add other", "gather"}, err: errGather},
		"an outdated definition":           {pod: alive, outdated: "it lacks a field", want: []string{"get"}, after: 5 * time.Second},
		"a chain that asks for a store":    {pod: alive, outcome: chain.Store("x"), want: []string{"get", "add own", "add other", "gather", "create", "store Storing"}, after: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			j := &journal{pod: test.pod, gather: test.gather, add: test.add}
			loop := reconciler.Loop[*corev1.Pod, *journal]{
				Name: "test", Controller: j, Chain: chain.Chain[*journal]{{Handler: step{test.outcome}}}, Finalizer: "own", Adds: []string{"own", "other"},
				Finalizers: j, Outdated: func(context.Context) string { return test.outdated },
			}
			if test.bare {
				loop.Finalizer, loop.Adds = "", nil
			}
			result, err := loop.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}})
			if !errors.Is(err, test.err) || result.RequeueAfter != test.after {
				t.Errorf("result %+v, error %v; want %s, %v", result, err, test.after, test.err)
			}
			if diff := cmp.Diff(test.want, j.lines); diff != "" {
				t.Errorf("the loop went another way (-want +got):\n%s", diff)
			}
		})
	}
}
