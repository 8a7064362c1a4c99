package drainer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var errBudget = errors.New("the budget is in the way")

// TestEvictionsDoNotWaitForEachOther: a webhook never responds to some evictions, more than are in progress at a time,
// and some are refused; all others succeed within a few passes.
func TestEvictionsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pods []corev1.Pod
		for i := range 40 {
			name := "well"
			if i < 20 {
				name = "hangs"
			} else if i == 39 {
				name = "refused"
			}
			pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + string(rune('A'+i))}})
		}
		var mu sync.Mutex
		gone, texts := map[string]bool{}, map[string]bool{}
		ask := func(ctx context.Context, p *corev1.Pod) error {
			if strings.HasPrefix(p.Name, "hangs") {
				<-ctx.Done()
				return ctx.Err()
			}
			if strings.HasPrefix(p.Name, "refused") {
				return errBudget
			}
			mu.Lock()
			defer mu.Unlock()
			gone[p.Name] = true
			return nil
		}
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), emptyTimeout)
			began := time.Now()
			answers := evict(ctx, pods, ask)
			cancel()
			if took := time.Since(began); took > emptyTimeout {
				t.Errorf("it took %s", took)
			}
			texts[refusals(nil, pods, answers)] = true
		}
		if len(gone) != 19 {
			t.Errorf("%d pods of 19 were asked", len(gone))
		}
		for text := range texts {
			if !strings.Contains(text, "not all evictions were answered within 15s") {
				t.Errorf("it is said: %q", text)
			}
		}
	})
}

// TestRefusalsAreTold checks that some of many refusals are reported, in a stable order, and evictions without a
// response as one.
func TestRefusalsAreTold(t *testing.T) {
	var pods []corev1.Pod
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	}
	for name, test := range map[string]struct {
		cordon  error
		answers []error
		want    string
	}{
		"none":              {nil, make([]error, 5), ""},
		"one":               {nil, []error{nil, errBudget, nil, nil, nil}, "; default/b: the budget is in the way"},
		"the Node":          {errBudget, make([]error, 5), "; its Node cannot be cordoned: the budget is in the way"},
		"no answer to some": {nil, []error{nil, errBudget, context.DeadlineExceeded, nil, context.DeadlineExceeded}, "; default/b: the budget is in the way; not all evictions were answered within 15s"},
		"many": {
			nil, []error{errBudget, errBudget, errBudget, errBudget, errBudget},
			"; default/a: the budget is in the way; default/b: the budget is in the way; default/c: the budget is in the way; and 2 more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, refusals(test.cordon, pods, test.answers)); diff != "" {
				t.Errorf("something else is reported (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMessagesAreBounded: a workload cluster may choose any names for its pods.
func TestMessagesAreBounded(t *testing.T) {
	if short := "waits for default/web"; bounded(short) != short {
		t.Errorf("%q becomes %q", short, bounded(short))
	}
	if long := bounded(strings.Repeat("ü", 1<<20)); len(long) > mostMessage+len("…") || !strings.HasSuffix(long, "ü…") {
		t.Errorf("a long message has %d bytes and ends with %q", len(long), long[len(long)-8:])
	}
}
